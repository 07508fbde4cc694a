// Finds the NEIGHBOURS most similar patches in a video on a GPU, where these are as many as the work-items of a group: each keeps
// one of the sorted list.
//
// Reference: methods page, "motion". The windows are those of search_tracks, all of whose candidates are offered.
// Grid: (NEIGHBOURS, references, frames), in groups of NEIGHBOURS (a power of two).
// Constants: PATCH = 8, STEP, WINDOW (in the frame of the reference), NEXT (in all others, at most half of NEIGHBOURS candidates),
//   NEIGHBOURS, KEPT (of the own frame; as many as a window has), FURTHEST, MOTION = 1.
// Shapes: as in search_tracks.
// Cost of a reference: 128 operations a candidate, and for every NEIGHBOURS of them a sorting network and a merge.

#include "common/patch_grid.h"
#include "common/frame_ring.h"
#include "vbm3d/candidates.h"
#include "vbm3d/motion.h"

#define WINDOWED (NEXT * NEXT)
#define HALF (NEIGHBOURS / 2)

// The lower of a candidate and that of another work-item, or if not `lower` the higher.
__attribute__((always_inline))
static inline CANDIDATE exchanged(__local CANDIDATE *shared, int lane, int other, CANDIDATE mine, bool lower)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[lane] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    const CANDIDATE theirs = shared[other];
    return (theirs < mine) == lower ? theirs : mine;
}

// Merges one more candidate of every work-item into the sorted list of which each holds one.
__attribute__((always_inline))
static inline CANDIDATE merged(__local CANDIDATE *shared, int lane, CANDIDATE best, CANDIDATE one)
{
    for (int size = 2; size <= NEIGHBOURS; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2)
            one = exchanged(shared, lane, lane ^ stride, one, ((lane & stride) == 0) == ((lane & size) == 0));
    // The lower half of both, of which one is read backwards, rises and falls.
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[lane] = one;
    barrier(CLK_LOCAL_MEM_FENCE);
    const CANDIDATE last = shared[NEIGHBOURS - 1 - lane];
    best = last < best ? last : best;
    for (int stride = HALF; stride > 0; stride /= 2)
        best = exchanged(shared, lane, lane ^ stride, best, (lane & stride) == 0);
    return best;
}

__kernel __attribute__((reqd_work_group_size(NEIGHBOURS, 1, 1)))
void search_many(SEARCH_ARGUMENTS MOTIONS_ARGUMENT)
{
    __local CANDIDATE shared[NEIGHBOURS];
    const int lane = get_local_id(0);
    const int frame = get_global_id(2);
    const int row = get_global_id(1) / columns, column = get_global_id(1) % columns;
    REFERENCE_AT(row, column)
    // A frame without noise is not searched; see "One exit" in kernels/README.md.
    const bool mine = sigma > 0.0f;
    float patch[PATCH][PATCH];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i)
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            patch[i][j] = here[i * pitch + j];

    CANDIDATE best = NO_CANDIDATE, spare = NO_CANDIDATE;
    // One half of the work-items goes forward in time, the other backward, after all have searched the own frame.
    const int backward = lane / HALF, sign = backward ? -1 : 1, reach = mine ? (backward ? frames_before : frames_after) : -1;
    const int turns = max(frames_before, frames_after);
    const int own = (WINDOW * WINDOW + NEIGHBOURS - 1) / NEIGHBOURS;
    bool seen = true; // whether the frame that the track comes from is there
    Track track = begin_with_block(MOTIONS, slot, backward, y - y0, x - x0,
                                   (backward ? frames_after : frames_before) > 0
                                       && frame_link(links, centre_link - sign).noise != 0.0f);
    for (int turn = 0; turn < own + turns; ++turn) {
        const int d = max(turn - own + 1, 0), dt = sign * d;
        int number = turn * NEIGHBOURS + lane, width = WINDOW;
        bool there_is = d <= reach;
        if (d > 0) {
            number = lane % HALF;
            width = NEXT;
        }
        const Link link = frame_link(links, centre_link + (there_is ? dt : 0));
        if (d > 0 && there_is) {
            if (seen && link.noise != 0.0f)
                track = with_block(track, MOTIONS, ring_slot(slot, dt - sign, ring), backward, y - y0, x - x0);
            seen = link.noise != 0.0f;
            track = moved_on(track, y0 - y, y0 + ny - PATCH - y, x0 - x, x0 + nx - PATCH - x);
        }
        there_is = there_is && link.noise > 0.0f;
        CANDIDATE one = NO_CANDIDATE;
        if (there_is && number < width * width) {
            const int dy = track.y * (d > 0) + number / width - width / 2, dx = track.x * (d > 0) + number % width - width / 2;
            __global const float *there = here + (long)(ring_slot(slot, dt, ring) - slot) * (long)plane + dy * pitch + dx;
            float sum = 0.0f;
            #pragma unroll
            for (int i = 0; i < PATCH; ++i)
                #pragma unroll
                for (int j = 0; j < PATCH; ++j) {
                    const float e = patch[i][j] - fma(there[i * pitch + j], link.scale, link.shift);
                    sum = fma(e, e, sum);
                }
            one = candidate(sum, dt, dy, dx, bias);
        }
        // The track goes on from the best of the frame.
        barrier(CLK_LOCAL_MEM_FENCE);
        shared[lane] = one;
        barrier(CLK_LOCAL_MEM_FENCE);
        CANDIDATE nearest = NO_CANDIDATE;
        for (int k = 0; k < WINDOWED; ++k)
            nearest = shared[backward * HALF + k] < nearest ? shared[backward * HALF + k] : nearest;
        if (d > 0 && there_is) {
            track.y = place_y(candidate_place(nearest));
            track.x = place_x(candidate_place(nearest));
        }
        best = merged(shared, lane, best, near_enough(one, limit));
        if (turn == own - 1 && lane >= KEPT) {
            spare = best;
            best = NO_CANDIDATE;
        }
    }
    // Where other frames are few or too different, more patches of the own frame fill the group.
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[lane] = best;
    barrier(CLK_LOCAL_MEM_FENCE);
    int found = 0;
    for (int k = 0; k < NEIGHBOURS; ++k)
        found += is_candidate(shared[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[lane] = spare;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane >= found && KEPT + lane - found < NEIGHBOURS)
        best = shared[KEPT + lane - found];
    if (mine) {
        const size_t out = (((size_t)frame * rows + row) * NEIGHBOURS + lane) * columns + column;
        keys[out] = (uint)(best >> 32);
        places[out] = candidate_place(best);
    }
}
