// Finds the NEIGHBOURS most similar patches of each reference patch on a GPU, for any patch and step.
//
// Reference: Davy and Ehret 2020, sections 4.1.3 to 4.1.5. Beyond the paper: a work-item serves COLUMNS references beside each
//   other in ROWS rows. It compares a strip of the image with shifted ones, and slides down the window: from one offset to the
//   next few rows are new, and the others stay in registers. It adds up its columns, for each row of patches, and gets those of
//   its neighbours by exchanges within the warp, with no barrier but around new pixels, or else in local memory.
// Grid: groups of (GROUP_X, GROUP_Y) work-items, frames in z; a group serves REFERENCES_X times REFERENCES_Y references, see
//   common/search_group.h.
// Constants: PATCH, STEP, WINDOW, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y; COLUMNS (1; or 2 if STEP = 1), ROWS (at most PATCH),
//   PERIOD (offsets after which a row is in the same register again: divides HEIGHT), BAND (offsets along x of which pixels are
//   in local memory at a time); WARP_ROWS = 1 where a warp holds whole rows of items (NVIDIA, GROUP_X = 32), 0 exchanges sums in
//   local memory.
// Shapes: padded as pad_far writes it with SPLIT = 1; ranks and keys as in search_square.
// Cost of a reference and offset: 2 STEP HEIGHT / ROWS operations, STEP HEIGHT / (ROWS PERIOD) words of local memory, and one
//   exchange for each doubling of the number of columns or strips.

#include "common/patch_grid.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
#define CHUNK PERIOD
#include "common/best_matches.h"
#include "common/search_group.h"

// Of its last strip, and of its last block of STEP rows, a patch covers OVER pixels.
#define WHOLE (PATCH / STEP)
#define OVER (PATCH % STEP)
#define STRIPS (WHOLE + (OVER > 0))
#define LISTS (ROWS * COLUMNS)
#define REFERENCES_X ((GROUP_X - (STRIPS - 2 + COLUMNS) / COLUMNS) * COLUMNS)
#define REFERENCES_Y (GROUP_Y * ROWS)
// Pixels of an item.
#define HEIGHT ((ROWS - 1) * STEP + PATCH)
#define WIDTH (COLUMNS * STEP)
#define TILE_X (GROUP_X * WIDTH + BAND - 1)
#define TILE_Y ((REFERENCES_Y - 1) * STEP + PATCH + WINDOW - 1)
// In local memory a row holds first all columns with x % WIDTH = 0, then those with 1, and so on, so that neighbouring items read
// neighbouring words.
#define LINE ((TILE_X + WIDTH - 1) / WIDTH * WIDTH)
#define PLACE(x) ((x) % WIDTH * (LINE / WIDTH) + (x) / WIDTH)
#define BANDS ((WINDOW + BAND - 1) / BAND)
// Rows of the window that are left after whole periods.
#define REST (WINDOW % PERIOD)
// Reference of a tile that an item serves: the first group skips some, so that items serve the same ones together in every tile.
#define REFERENCE(axis, item, per_group, regular, count, skipped) \
    (group_reference(get_group_id(axis), item, per_group, (regular) + (skipped), (count) + (skipped)) - (skipped))
// Row i of the shifted image.
#define SHIFTED(i) shifted[((i) / PERIOD * PERIOD + (turn + (i)) % PERIOD) * WIDTH]

#include "search/sliding_rows.h"
#include "search/sliding_strips.h"

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_sliding(TILE_ARGUMENTS, int regular_y, int regular_x, int skipped_y, int skipped_x,
                    int frames_before, int frames_after, int slices,
                    __global const int *ranks, __global uint *keys)
{
    __local float tile[TILE_Y * LINE];
    __local uint pending[LISTS * PENDING * GROUP_SIZE];
#if !WARP_ROWS
    __local Sums exchanged[ROWS][GROUP_Y][GROUP_X * COLUMNS];
#endif

    const int lx = get_local_id(0);
    const int ly = get_local_id(1);
    const int item = ly * GROUP_X + lx;
    const int frame = get_global_id(2);
    const int top = y0 + group_origin(get_group_id(1), REFERENCES_Y, regular_y + skipped_y, first_y - skipped_y * STEP, last_y);
    const int left = x0 + group_origin(get_group_id(0), REFERENCES_X, regular_x + skipped_x, first_x - skipped_x * STEP, last_x);
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane;

    float reference[HEIGHT * WIDTH];
    #pragma unroll
    for (int i = 0; i < HEIGHT; ++i) {
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j)
            reference[i * WIDTH + j] = padded_pixel(here, pny, pitch, top + ly * ROWS * STEP + i, left + lx * WIDTH + j);
    }

    // Where the reference is outside the image, no key is smaller than those of its list.
    uint best[LISTS][NEIGHBOURS];
    int waiting[LISTS];
    #pragma unroll
    for (int n = 0; n < LISTS; ++n) {
        const int row = REFERENCE(1, ly * ROWS + n / COLUMNS, REFERENCES_Y, regular_y, rows, skipped_y);
        const int column = REFERENCE(0, lx * COLUMNS + n % COLUMNS, REFERENCES_X, regular_x, columns, skipped_x);
        waiting[n] = 0;
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            best[n][k] = row >= 0 && column >= 0 ? NO_MATCH : 0u;
    }
    int seen = 0;
    int next = 1;

    for (int frame_number = 0; frame_number <= frames_before + frames_after; ++frame_number)
    for (int dz = -slices; dz <= slices; ++dz)
    for (int number = 0; number < BANDS; ++number) {
        const int dt = nearest_first(frame_number, frames_before, frames_after);
        __global const float *there = here + ((long)dt * pnz + dz) * (long)plane;
        // From the middle out: bands, and offsets within each.
        const int band = from_middle(number, BANDS) * BAND;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < TILE_Y * TILE_X; k += GROUP_SIZE)
            tile[k / TILE_X * LINE + PLACE(k % TILE_X)] =
                padded_pixel(there, pny, pitch, top - WINDOW / 2 + k / TILE_X, left - WINDOW / 2 + band + k % TILE_X);
        barrier(CLK_LOCAL_MEM_FENCE);

        const int offsets_x = min(BAND, WINDOW - band);
        for (int nth = 0; nth < offsets_x; ++nth) {
            const int dx = from_middle(nth, offsets_x);
            __global const int *rank = ranks + band + dx
                + (((dt + frames_before) * (2 * slices + 1) + dz + slices) * WINDOW) * WINDOW;
            __local const float *line[WIDTH];
            float shifted[HEIGHT * WIDTH];
            #pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                line[j] = tile + ly * ROWS * STEP * LINE + PLACE(dx + j) + lx;
                #pragma unroll
                for (int i = 0; i < HEIGHT; ++i)
                    if (i % PERIOD < PERIOD - 1)
                        shifted[i * WIDTH + j] = line[j][i * LINE];
            }
            for (int dy0 = 0; dy0 < WINDOW; dy0 += PERIOD) {
                const int offsets = min(PERIOD, WINDOW - dy0);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    // At the end of the window, only the first part of a period may be left.
                    if (part == 0 || offsets == PERIOD) {
                        #pragma unroll
                        for (int turn = part ? REST : 0; turn < (part ? PERIOD : REST); ++turn) {
                            const int dy = dy0 + turn;
                            Sums sums[COLUMNS][ROWS];
                            #pragma unroll
                            for (int j = 0; j < WIDTH; ++j) {
                                #pragma unroll
                                for (int i = PERIOD - 1; i < HEIGHT; i += PERIOD)
                                    (&SHIFTED(i))[j] = line[j][(dy + i) * LINE];
                            }
                            #pragma unroll
                            for (int c = 0; c < COLUMNS; ++c)
                                add_rows(reference, shifted, c, turn, sums[c]);
#if !WARP_ROWS
                            #pragma unroll
                            for (int n = 0; n < LISTS; ++n)
                                exchanged[n / COLUMNS][ly][lx * COLUMNS + n % COLUMNS] = sums[n % COLUMNS][n / COLUMNS];
                            barrier(CLK_LOCAL_MEM_FENCE);
#endif
                            #pragma unroll
                            for (int r = 0; r < ROWS; ++r) {
                                float distances[COLUMNS];
#if WARP_ROWS
                                add_strips(sums, r, distances);
#else
                                add_strips(exchanged[r][ly], distances);
#endif
                                #pragma unroll
                                for (int c = 0; c < COLUMNS; ++c) {
                                    const int n = r * COLUMNS + c;
                                    const uint key = (as_uint(distances[c]) & ~INDEX_MASK) | (uint)rank[dy * WINDOW];
                                    offer_key(best[n], pending + n * PENDING * GROUP_SIZE + item, &waiting[n], key);
                                }
                            }
#if !WARP_ROWS
                            barrier(CLK_LOCAL_MEM_FENCE);
#endif
                        }
                    }
                }
                seen += offsets;
                const bool due = seen >= next;
                #pragma unroll
                for (int n = 0; n < LISTS; ++n) {
                    if (due || waiting[n] > (PENDING - CHUNK) * PENDING_BYTES) {
                        insert_pending(best[n], pending + n * PENDING * GROUP_SIZE + item, waiting[n] / PENDING_BYTES);
                        waiting[n] = 0;
                    }
                }
                if (due)
                    next = next_insertion(seen);
            }
        }
    }
    #pragma unroll
    for (int n = 0; n < LISTS; ++n) {
        const int row = REFERENCE(1, ly * ROWS + n / COLUMNS, REFERENCES_Y, regular_y, rows, skipped_y);
        const int column = REFERENCE(0, lx * COLUMNS + n % COLUMNS, REFERENCES_X, regular_x, columns, skipped_x);
        if (row >= 0 && column >= 0)
            store_matches(best[n], pending + n * PENDING * GROUP_SIZE + item, waiting[n],
                          keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column, columns);
    }
}
