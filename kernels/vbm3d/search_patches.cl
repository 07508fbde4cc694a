// Finds the NEIGHBOURS most similar patches in a video, like search_tracks, with the patch spread over lanes.
//
// Reference: Davy and Ehret 2020, section 4.2.4: a lane holds one column of the reference patch and compares it with that of
//   every candidate; the sums of the lanes are added up. Candidates that lie one above the other are compared together, so
//   that their rows are loaded once (vbm3d/patch_columns.h).
// Grid: (columns, rows, frames), for CPUs: the lanes are those of a vector.
// Constants: PATCH = 8, STEP, WINDOW, NEXT, KEPT, NEIGHBOURS, FURTHEST, MOTION (whether there are other frames),
//   FILL (width of the window that fills an incomplete group).
// Shapes: as in search_tracks.
// Cost of a reference: 16 vector operations a candidate, and the sums over lanes.

#include "common/patch_grid.h"
#include "common/frame_ring.h"
#include "vbm3d/candidates.h"
#include "vbm3d/motion.h"

#define TALLEST (WINDOW > NEXT ? WINDOW : NEXT)

#include "vbm3d/patch_columns.h"

__kernel void search_patches(SEARCH_ARGUMENTS MOTIONS_ARGUMENT)
{
    const int frame = get_global_id(2);
    const int row = get_global_id(1);
    const int column = get_global_id(0);
    REFERENCE_AT(row, column)
    if (sigma <= 0.0f)
        return;

    REAL patch[PATCH];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i)
        patch[i] = LOAD(here + i * pitch);
    REAL sums[TALLEST];
    CANDIDATE own[KEPT], start[KEPT], best[NEIGHBOURS];
    for (int k = 0; k < KEPT; ++k)
        own[k] = NO_CANDIDATE;
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_CANDIDATE;

    for (int dx = -(WINDOW / 2); dx <= WINDOW / 2; ++dx) {
        COMPARE_COLUMN(sums, WINDOW, here - WINDOW / 2 * pitch + dx, 1.0f, 0.0f);
        OFFER_COLUMN(sums, WINDOW, 0, -(WINDOW / 2), dx);
    }
    for (int k = 0; k < KEPT; ++k) {
        start[k] = own[k];
        keep_candidate(best, NEIGHBOURS, near_enough(own[k], limit));
    }

#if MOTION
    Track track;
    bool seen = true; // whether the frame that the track comes from is there
    for (int turn = 0; turn < frames_before + frames_after; ++turn) {
        const bool forward = turn < frames_after;
        const int dt = forward ? turn + 1 : frames_after - turn - 1;
        const bool begins = turn == 0 || turn == frames_after;
        const int sign = forward ? 1 : -1;
        const bool there_is = frame_link(links, centre_link + dt).noise != 0.0f;
        if (begins) {
            const bool other = (forward ? frames_before : frames_after) > 0;
            track = begin_with_block(MOTIONS, slot, !forward, y - y0, x - x0,
                                     other && frame_link(links, centre_link - sign).noise != 0.0f);
            seen = true;
        }
        if (seen && there_is)
            track = with_block(track, MOTIONS, ring_slot(slot, dt - sign, ring), !forward, y - y0, x - x0);
        seen = there_is;
        track = moved_on(track, y0 - y, y0 + ny - PATCH - y, x0 - x, x0 + nx - PATCH - x);
        const Link link = frame_link(links, centre_link + dt);
        if (link.noise <= 0.0f)
            continue;
        __global const float *there = here + (long)(ring_slot(slot, dt, ring) - slot) * (long)plane;
        for (int k = 0; k < KEPT; ++k)
            own[k] = NO_CANDIDATE;
        for (int dx = track.x - NEXT / 2; dx <= track.x + NEXT / 2; ++dx) {
            COMPARE_COLUMN(sums, NEXT, there + (track.y - NEXT / 2) * pitch + dx, link.scale, link.shift);
            OFFER_COLUMN(sums, NEXT, dt, track.y - NEXT / 2, dx);
        }
        track.y = place_y(candidate_place(own[0]));
        track.x = place_x(candidate_place(own[0]));
        for (int k = 0; k < KEPT; ++k)
            keep_candidate(best, NEIGHBOURS, near_enough(own[k], limit));
    }
#endif
    // Where other frames are few or too different, as at the start of a video, more patches of the own frame fill the group.
    const CANDIDATE last = start[KEPT - 1];
    if (!is_candidate(best[NEIGHBOURS - 1]) && is_candidate(last)) {
        CANDIDATE more[NEIGHBOURS];
        for (int k = 0; k < NEIGHBOURS; ++k)
            more[k] = NO_CANDIDATE;
        for (int dx = -(FILL / 2); dx <= FILL / 2; ++dx) {
            for (int top = -(FILL / 2); top <= FILL / 2; top += NEXT) {
                COMPARE_COLUMN(sums, NEXT, here + top * pitch + dx, 1.0f, 0.0f);
                for (int k = 0; k < NEXT; ++k) {
                    const CANDIDATE one = candidate(lanes_sum(sums[k]), 0, top + k, dx, bias);
                    if (one > last && one < more[NEIGHBOURS - 1] && top + k <= FILL / 2)
                        insert_candidate(more, NEIGHBOURS, one);
                }
            }
        }
        for (int k = 0; k < NEIGHBOURS; ++k)
            if (!is_candidate(best[NEIGHBOURS - 1]))
                insert_candidate(best, NEIGHBOURS, near_enough(more[k], limit));
    }
    const size_t out = ((size_t)frame * rows + row) * NEIGHBOURS * columns + column;
    store_candidates(best, keys + out, places + out, columns);
}
