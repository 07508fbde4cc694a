// Finds the NEIGHBOURS most similar patches in a video on a GPU: the best patches of a frame are the centres of the windows
// that are searched in the next.
//
// Reference: Davy and Ehret 2020, section 4.2.3: several work-items search for one reference patch, each in a part of the
//   windows. Here a part is a strip of a window, SPAN columns wide, whose rows are loaded once for all its displacements.
//   The patch is compared BLOCK columns at a time, which limits the registers.
// Grid: (ITEMS, GROUP_X * GROUP_Y * groups, frames), `groups_x` groups side by side.
// Constants: PATCH = 8, STEP, WINDOW (in the frame of the reference), NEXT (in all others), KEPT (of each frame), NEIGHBOURS,
//   SPAN, BLOCK (a divisor of PATCH), GROUP_X, GROUP_Y, WARP_SYNC (1 where ITEMS divides a warp, NVIDIA).
// Shapes: images (ring, pny, pitch), padded with FAR, `first` the slot of the first reference frame; links (frames,
//   frames_before + 1 + frames_after, 3), see common/frame_ring.h; keys and places (frames, rows, NEIGHBOURS, columns), sorted
//   by distance. Frames whose own link has no noise are not written.
// Cost of a reference: 128 operations a candidate; WINDOW^2 + frames * KEPT * NEXT^2 candidates; a strip loads
//   (NEXT + PATCH - 1) * (SPAN + BLOCK - 1) * PATCH / BLOCK words.

#include "common/patch_grid.h"
#include "common/frame_ring.h"
#include "vbm3d/candidates.h"
#include "vbm3d/strips.h"
#include "common/team_sync.h"

#define STRIPS ((NEXT + SPAN - 1) / SPAN)
#define ITEMS (KEPT * STRIPS)
#define REFERENCES (GROUP_X * GROUP_Y)
// Number of strips in the window of the own frame, along each axis.
#define FIRST_X ((WINDOW + SPAN - 1) / SPAN)
#define FIRST_Y ((WINDOW + NEXT - 1) / NEXT)

// Sums of squared differences between the reference patch at `here` and a strip whose first patch has its corner at `pixels`.
static inline void compare_strip(float sums[NEXT][SPAN], __global const float *here, __global const float *pixels, int pitch,
                                 float scale, float shift)
{
    #pragma unroll
    for (int k = 0; k < NEXT; ++k) {
        #pragma unroll
        for (int d = 0; d < SPAN; ++d)
            sums[k][d] = 0.0f;
    }
    #pragma unroll 1
    for (int block = 0; block < PATCH; block += BLOCK) {
        float own[PATCH][BLOCK];
        #pragma unroll
        for (int i = 0; i < PATCH; ++i) {
            #pragma unroll
            for (int j = 0; j < BLOCK; ++j)
                own[i][j] = here[i * pitch + block + j];
        }
        #pragma unroll
        for (int r = 0; r < NEXT + PATCH - 1; ++r) {
            float row[SPAN + BLOCK - 1];
            #pragma unroll
            for (int j = 0; j < SPAN + BLOCK - 1; ++j)
                row[j] = fma(pixels[r * pitch + block + j], scale, shift);
            #pragma unroll
            for (int k = 0; k < NEXT; ++k) {
                if (r >= k && r - k < PATCH) {
                    #pragma unroll
                    for (int d = 0; d < SPAN; ++d) {
                        #pragma unroll
                        for (int j = 0; j < BLOCK; ++j) {
                            const float e = own[(r - k) % PATCH][j] - row[d + j];
                            sums[k][d] = fma(e, e, sums[k][d]);
                        }
                    }
                }
            }
        }
    }
}

// Merges the best candidates of all items of one reference.
__attribute__((always_inline))
static inline void share(CANDIDATE *best, const CANDIDATE *own, __local CANDIDATE offers[ITEMS][KEPT], int item)
{
    TEAM_SYNC();
    #pragma unroll
    for (int k = 0; k < KEPT; ++k)
        offers[item][k] = own[k];
    TEAM_SYNC();
    #pragma unroll
    for (int k = 0; k < KEPT; ++k)
        best[k] = NO_CANDIDATE;
    #pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        #pragma unroll
        for (int k = 0; k < KEPT; ++k)
            insert_candidate(best, KEPT, offers[i][k]);
    }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, REFERENCES, 1)))
void search_windows(__global const float *images, int ring, int first, int pny, int pitch, int y0, int x0,
                    int ny, int nx, int first_y, int last_y, int rows, int first_x, int last_x, int columns, int groups_x,
                    __global const float *links, int frames_before, int frames_after, float still, float similar,
                    __global uint *keys, __global uint *places)
{
    __local CANDIDATE offers[REFERENCES][ITEMS][KEPT];

    const int item = get_local_id(0);
    const int reference = get_local_id(1);
    const int frame = get_global_id(2);
    const int group = get_group_id(1);
    const int row = group / groups_x * GROUP_Y + reference / GROUP_X;
    const int column = group % groups_x * GROUP_X + reference % GROUP_X;
    const int y = y0 + grid_position(min(row, rows - 1), first_y, last_y);
    const int x = x0 + grid_position(min(column, columns - 1), first_x, last_x);
    const size_t plane = (size_t)pny * pitch;
    const int slot = ring_slot(first, frame, ring);
    __global const float *here = images + slot * plane + (size_t)y * pitch + x;
    const int centre_link = frame * (frames_before + 1 + frames_after) + frames_before;
    const float sigma = frame_link(links, centre_link).noise;
    // A frame without noise is not searched; see "One exit" in kernels/README.md.
    const bool mine = sigma > 0.0f && row < rows && column < columns;
    const float bias = still * sigma * sigma;
    const float limit = similar * sigma * sigma;

    float sums[NEXT][SPAN];
    CANDIDATE own[KEPT], start[KEPT], best[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < KEPT; ++k)
        own[k] = NO_CANDIDATE;
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_CANDIDATE;

    #pragma unroll 1
    for (int strip = item; strip < FIRST_X * FIRST_Y && sigma > 0.0f; strip += ITEMS) {
        const int top = strip / FIRST_X * NEXT - WINDOW / 2;
        const int left = strip % FIRST_X * SPAN - WINDOW / 2;
        compare_strip(sums, here, here + top * pitch + left, pitch, 1.0f, 0.0f);
        OFFER_STRIP(own, KEPT, sums, NEXT, SPAN, 1, 0, top, left, top + k <= WINDOW / 2 && left + d <= WINDOW / 2);
    }
    share(start, own, offers[reference], item);
    #pragma unroll
    for (int k = 0; k < KEPT; ++k)
        insert_candidate(best, NEIGHBOURS, near_enough(start[k], limit));

    const int window = item / STRIPS;
    const int shifted = item % STRIPS * SPAN - NEXT / 2;
    CANDIDATE centres[KEPT], found[KEPT];
    #pragma unroll 1
    for (int turn = 0; turn < frames_before + frames_after; ++turn) {
        const bool forward = turn < frames_after;
        const int dt = forward ? turn + 1 : frames_after - turn - 1;
        if (turn == 0 || turn == frames_after) {
            #pragma unroll
            for (int k = 0; k < KEPT; ++k)
                centres[k] = start[k];
        }
        const Link link = frame_link(links, centre_link + dt);
        const bool usable = sigma > 0.0f && link.noise > 0.0f;
        CANDIDATE centre = centres[0];
        #pragma unroll
        for (int k = 1; k < KEPT; ++k)
            centre = k == window ? centres[k] : centre;
        #pragma unroll
        for (int k = 0; k < KEPT; ++k)
            own[k] = NO_CANDIDATE;
        if (usable && is_candidate(centre)) {
            const int top = place_y(candidate_place(centre)) - NEXT / 2;
            const int left = place_x(candidate_place(centre)) + shifted;
            __global const float *there = here + (long)(ring_slot(slot, dt, ring) - slot) * (long)plane;
            compare_strip(sums, here, there + top * pitch + left, pitch, link.scale, link.shift);
            OFFER_STRIP(own, KEPT, sums, NEXT, SPAN, 1, dt, top, left,
                        shifted + d <= NEXT / 2 && !repeated(centres, window, top + k, left + d));
        }
        share(found, own, offers[reference], item);
        #pragma unroll
        for (int k = 0; k < KEPT; ++k) {
            insert_candidate(best, NEIGHBOURS, near_enough(found[k], limit));
            centres[k] = usable ? found[k] : centres[k];
        }
    }
    if (mine && item == 0) {
        const size_t out = ((size_t)frame * rows + row) * NEIGHBOURS * columns + column;
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k) {
            keys[out + (size_t)k * columns] = (uint)(best[k] >> 32);
            places[out + (size_t)k * columns] = candidate_place(best[k]);
        }
    }
}
