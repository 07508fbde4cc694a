// Finds the NEIGHBOURS most similar patches in a video on a GPU by following the motion of each patch.
//
// Reference: the predictive search of Davy and Ehret 2020, section 4.2, with changes.
//   The best patch is assumed to move on as its block does, and one window around the predicted position is searched (methods
//   page, "motion"). A work-item searches for one reference in one direction of time, so that nothing is exchanged before the end.
// Grid: (GROUP_X * GROUP_Y * groups, DIRECTIONS, frames), `groups_x` groups side by side.
// Constants: PATCH = 8, STEP, WINDOW (in the frame of the reference), NEXT (in all others), KEPT (of each frame), NEIGHBOURS,
//   FURTHEST, MOTION (whether there are other frames), DIRECTIONS (1 if only one is searched, else 2), FILL (width of the window
//   that fills an incomplete group), GROUP_X, GROUP_Y.
// Shapes: images (ring, pny, pitch), padded with FAR, `first` the slot of the first reference frame; links (frames,
//   frames_before + 1 + frames_after, 3), see common/frame_ring.h; keys and places (frames, rows, NEIGHBOURS, columns), sorted
//   by distance. Frames whose own link has no noise are not written.
// Cost of a reference: 128 operations a candidate; WINDOW^2 + frames * NEXT^2 candidates.

#include "common/patch_grid.h"
#include "common/frame_ring.h"
#include "vbm3d/candidates.h"
#include "vbm3d/motion.h"
#include "vbm3d/strips.h"

#define REFERENCES (GROUP_X * GROUP_Y)

__kernel __attribute__((reqd_work_group_size(REFERENCES, DIRECTIONS, 1)))
void search_tracks(SEARCH_ARGUMENTS MOTIONS_ARGUMENT)
{
#if DIRECTIONS > 1
    __local CANDIDATE offers[NEIGHBOURS][REFERENCES];
#endif
    const int reference = get_local_id(0);
    const int frame = get_global_id(2);
    const int group = get_group_id(0);
    const int row = group / groups_x * GROUP_Y + reference / GROUP_X;
    const int column = group % groups_x * GROUP_X + reference % GROUP_X;
    REFERENCE_AT(min(row, rows - 1), min(column, columns - 1))
    // A frame without noise is not searched; see "One exit" in kernels/README.md.
    const bool mine = sigma > 0.0f && row < rows && column < columns;

    float patch[PATCH][PATCH];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            patch[i][j] = here[i * pitch + j];
    }
    CANDIDATE own[KEPT], best[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_CANDIDATE;

    // Forward and backward in time; with one direction, the one that has frames.
    const int backward = DIRECTIONS > 1 ? get_local_id(1) : frames_after == 0;
    const int sign = backward ? -1 : 1;
    const int reach = sigma > 0.0f ? (backward ? frames_before : frames_after) : -1;
#if MOTION
    // Whether the frame that the track comes from is there.
    bool seen = true;
    Track track = begin_with_block(MOTIONS, slot, backward, y - y0, x - x0,
                                   (backward ? frames_after : frames_before) > 0
                                       && frame_link(links, centre_link - sign).noise != 0.0f);
#endif
    CANDIDATE last = NO_CANDIDATE;
    // The own frame is searched forward.
    #pragma unroll 1
    for (int d = DIRECTIONS > 1 && backward ? 1 : 0; d <= reach; ++d) {
        const int dt = sign * d;
        const Link link = frame_link(links, centre_link + dt);
        int moved_y = 0, moved_x = 0;
#if MOTION
        if (d > 0 && seen && link.noise != 0.0f)
            track = with_block(track, MOTIONS, ring_slot(slot, dt - sign, ring), backward, y - y0, x - x0);
        seen = link.noise != 0.0f;
        if (d > 0)
            track = moved_on(track, y0 - y, y0 + ny - PATCH - y, x0 - x, x0 + nx - PATCH - x);
        moved_y = track.y;
        moved_x = track.x;
#endif
        if (link.noise <= 0.0f)
            continue;
        __global const float *there = here + (long)(ring_slot(slot, dt, ring) - slot) * (long)plane;
        #pragma unroll
        for (int k = 0; k < KEPT; ++k)
            own[k] = NO_CANDIDATE;
        const int width = d == 0 ? WINDOW : NEXT;
        const int across = CELLS(width, NEXT);
        float sums[NEXT][NEXT];
        #pragma unroll 1
        for (int strip = 0; strip < across * across; ++strip) {
            const int top = moved_y + strip / across * NEXT - width / 2;
            const int left = moved_x + strip % across * NEXT - width / 2;
            COMPARE_STRIP(sums, NEXT, NEXT, there + top * pitch + left, LINKED);
            OFFER_STRIP(own, KEPT, sums, NEXT, NEXT, dt, top, left,
                        top + k <= moved_y + width / 2 && left + d <= moved_x + width / 2);
        }
#if MOTION
        if (d > 0) {
            track.y = place_y(candidate_place(own[0]));
            track.x = place_x(candidate_place(own[0]));
        }
#endif
        #pragma unroll
        for (int k = 0; k < KEPT; ++k)
            insert_candidate(best, NEIGHBOURS, near_enough(own[k], limit));
        if (d == 0)
            last = own[KEPT - 1];
    }
#if DIRECTIONS > 1
    if (backward) {
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            offers[k][reference] = best[k];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (backward)
        return;
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        insert_candidate(best, NEIGHBOURS, offers[k][reference]);
#endif
    // Where other frames are few or too different, as at the start of a video, more patches of the own frame fill the group.
    if (!is_candidate(best[NEIGHBOURS - 1]) && is_candidate(last)) {
        const int across = CELLS(FILL, NEXT);
        float sums[1][NEXT];
        CANDIDATE more[NEIGHBOURS];
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            more[k] = NO_CANDIDATE;
        // This is rare: flat strips keep its code small, which would otherwise displace that of the search above.
        #pragma unroll 1
        for (int strip = 0; strip < FILL * across; ++strip) {
            const int top = strip / across - FILL / 2;
            const int left = strip % across * NEXT - FILL / 2;
            COMPARE_STRIP(sums, 1, NEXT, here + top * pitch + left, UNCHANGED);
            OFFER_STRIP(more, NEIGHBOURS, sums, 1, NEXT, 0, top, left, left + d <= FILL / 2 && one > last);
        }
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            if (!is_candidate(best[NEIGHBOURS - 1]))
                insert_candidate(best, NEIGHBOURS, near_enough(more[k], limit));
    }
    if (mine) {
        const size_t out = ((size_t)frame * rows + row) * NEIGHBOURS * columns + column;
        store_candidates(best, keys + out, places + out, columns);
    }
}
