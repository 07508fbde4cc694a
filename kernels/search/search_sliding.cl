// Finds the NEIGHBOURS most similar patches of each reference patch on a GPU, where there is one at every pixel.
//
// Reference: Davy and Ehret 2020, sections 4.1.3 and 4.1.5. Beyond the paper: a work-item serves COLUMNS references beside each
//   other in ROWS rows. It compares COLUMNS columns of the image with shifted ones, and slides down the window: from one offset to
//   the next only one row is new, and the others stay in registers. It adds up its columns, for each row of patches, and gets
//   those of its neighbours by exchanges within the warp. There is no barrier but around a new frame.
// Grid: groups of (GROUP_X, GROUP_Y) work-items, frames in z; a group serves REFERENCES_X times REFERENCES_Y references, see
//   common/search_group.h.
// Constants: PATCH, STEP = 1, WINDOW, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y, BAND, COLUMNS (1 or 2), ROWS (at most PATCH); WARP_ROWS
//   = 1 where a warp holds whole rows of items (NVIDIA, GROUP_X = 32); otherwise sums are exchanged in local memory.
// Shapes: padded as pad_far writes it with SPLIT = 1; ranks and keys as in search_square.
// Cost of a reference and offset: (2 PATCH + 2 ROWS) / ROWS operations, 1 / ROWS words of local memory, 2 to 3 exchanges.

#include "common/patch_grid.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
#define HEIGHT (PATCH + ROWS - 1)
// Offsets between two insertions: then each row is in the same register again.
#define CHUNK HEIGHT
#include "common/best_matches.h"
#include "common/search_group.h"
#if WARP_ROWS
#include "common/from_right.h"
#endif

#define REFERENCES_X ((GROUP_X - (PATCH - 2 + COLUMNS) / COLUMNS) * COLUMNS)
#define REFERENCES_Y (GROUP_Y * ROWS)
#define WIDTH (GROUP_X * COLUMNS)
// Local memory holds a band of the window at a time: BAND offsets along x.
#define BANDS ((WINDOW + BAND - 1) / BAND)
#define TILE_X (WIDTH + BAND - 1)
#define TILE_Y (GROUP_Y * ROWS + PATCH - 1 + WINDOW - 1)
// In local memory, all even columns of a row come before the odd ones, so that neighbouring items read neighbouring words.
#define LINE ((TILE_X + COLUMNS - 1) / COLUMNS * COLUMNS)
#define PLACE(x) ((x) % COLUMNS * (LINE / COLUMNS) + (x) / COLUMNS)
// Rows of the window that are left after whole chunks.
#define REST (WINDOW % HEIGHT)

// Sums over PATCH rows of squared differences, for each of ROWS rows of patches. Row i of the shifted image is
// shifted[(turn + i) % HEIGHT].
static inline void add_rows(const float *reference, const float *shifted, int turn, float *sums)
{
    float e[HEIGHT];
    #pragma unroll
    for (int i = 0; i < HEIGHT; ++i)
        e[i] = reference[i] - shifted[(turn + i) % HEIGHT];
    // What all share, then rows above it, then rows below it.
    float sum = 0.0f;
    #pragma unroll
    for (int i = ROWS - 1; i < PATCH; ++i)
        sum = fma(e[i], e[i], sum);
    sums[ROWS - 1] = sum;
    #pragma unroll
    for (int r = ROWS - 2; r >= 0; --r) {
        sum = fma(e[r], e[r], sum);
        sums[r] = sum;
    }
    float below = 0.0f;
    #pragma unroll
    for (int r = 1; r < ROWS; ++r) {
        below = fma(e[PATCH + r - 1], e[PATCH + r - 1], below);
        sums[r] += below;
    }
}

#if WARP_ROWS
// Sum of `count` values: that of the item, and of those to its right.
static inline float add_right(float value, int count)
{
    float total = 0.0f;
    float run = value;
    int done = 0;
    #pragma unroll
    for (int width = 1; width <= 16; width *= 2) {
        if (count & width) {
            total += done ? from_right(run, done) : run;
            done += width;
        }
        if (2 * width <= count)
            run += from_right(run, width);
    }
    return total;
}
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_sliding(__global const float *padded, int pnz, int pny, int pitch,
                    int t0, int z0, int y0, int x0, int nz,
                    int first_y, int last_y, int rows, int first_x, int last_x, int columns,
                    int regular_y, int regular_x,
                    int frames_before, int frames_after, int slices,
                    __global const int *ranks, __global uint *keys)
{
    __local float tile[TILE_Y * LINE];
    __local uint pending[ROWS * COLUMNS * PENDING * GROUP_SIZE];
#if !WARP_ROWS
    __local float exchanged[ROWS][GROUP_Y][WIDTH];
#endif

    const int lx = get_local_id(0);
    const int ly = get_local_id(1);
    const int item = ly * GROUP_X + lx;
    const int frame = get_global_id(2);
    const int top = y0 + group_origin(get_group_id(1), REFERENCES_Y, regular_y, first_y, last_y);
    const int left = x0 + group_origin(get_group_id(0), REFERENCES_X, regular_x, first_x, last_x);
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane;

    float reference[COLUMNS][HEIGHT];
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        #pragma unroll
        for (int i = 0; i < HEIGHT; ++i)
            reference[c][i] = padded_pixel(here, pny, pitch, top + ly * ROWS + i, left + lx * COLUMNS + c);
    }

    // Where the reference is outside the image, no key is smaller than those of its list.
    uint best[ROWS * COLUMNS][NEIGHBOURS];
    int count[ROWS * COLUMNS];
    #pragma unroll
    for (int n = 0; n < ROWS * COLUMNS; ++n) {
        const int row = group_reference(get_group_id(1), ly * ROWS + n / COLUMNS, REFERENCES_Y, regular_y, rows);
        const int column = group_reference(get_group_id(0), lx * COLUMNS + n % COLUMNS, REFERENCES_X, regular_x, columns);
        count[n] = 0;
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            best[n][k] = row >= 0 && column >= 0 ? NO_MATCH : 0u;
    }
    int seen = 0;
    int next = 1;

    for (int frame_number = 0; frame_number <= frames_before + frames_after; ++frame_number)
    for (int dz = -slices; dz <= slices; ++dz) {
        const int dt = nearest_first(frame_number, frames_before, frames_after);
        __global const float *there = here + ((long)dt * pnz + dz) * (long)plane;
        for (int nth = 0; nth < BANDS; ++nth) {
            const int band = from_middle(nth, BANDS) * BAND;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int k = item; k < TILE_Y * TILE_X; k += GROUP_SIZE)
                tile[k / TILE_X * LINE + PLACE(k % TILE_X)] =
                    padded_pixel(there, pny, pitch, top - WINDOW / 2 + k / TILE_X, left - WINDOW / 2 + band + k % TILE_X);
            barrier(CLK_LOCAL_MEM_FENCE);
            const int across = min(BAND, WINDOW - band);
            for (int shift = 0; shift < across; ++shift) {
            const int dx = from_middle(shift, across);
            __global const int *rank = ranks + band + dx
                + (((dt + frames_before) * (2 * slices + 1) + dz + slices) * WINDOW) * WINDOW;
            __local const float *line[COLUMNS];
            float shifted[COLUMNS][HEIGHT];
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                line[c] = tile + ly * ROWS * LINE + PLACE(dx + c) + lx;
                #pragma unroll
                for (int i = 0; i < HEIGHT - 1; ++i)
                    shifted[c][i] = line[c][i * LINE];
            }
            for (int dy0 = 0; dy0 < WINDOW; dy0 += HEIGHT) {
                const int offsets = min(HEIGHT, WINDOW - dy0);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    // At the end of the window, only the first part of a chunk is left.
                    if (part == 0 || REST == 0 || offsets == HEIGHT) {
                        #pragma unroll
                        for (int turn = part ? REST : 0; turn < (part ? HEIGHT : REST); ++turn) {
                            const int dy = dy0 + turn;
                            float sums[COLUMNS][ROWS];
                            #pragma unroll
                            for (int c = 0; c < COLUMNS; ++c) {
                                shifted[c][(turn + HEIGHT - 1) % HEIGHT] = line[c][(dy + HEIGHT - 1) * LINE];
                                add_rows(reference[c], shifted[c], turn, sums[c]);
                            }
#if !WARP_ROWS
                            #pragma unroll
                            for (int r = 0; r < ROWS; ++r) {
                                #pragma unroll
                                for (int c = 0; c < COLUMNS; ++c)
                                    exchanged[r][ly][lx * COLUMNS + c] = sums[c][r];
                            }
                            barrier(CLK_LOCAL_MEM_FENCE);
#endif
                            #pragma unroll
                            for (int r = 0; r < ROWS; ++r) {
                                float distance[COLUMNS];
#if !WARP_ROWS
                                #pragma unroll
                                for (int c = 0; c < COLUMNS; ++c) {
                                    distance[c] = 0.0f;
                                    for (int j = 0; j < PATCH; ++j)
                                        distance[c] += exchanged[r][ly][min(lx * COLUMNS + c + j, WIDTH - 1)];
                                }
#elif COLUMNS == 1
                                distance[0] = add_right(sums[0][r], PATCH);
#elif PATCH % 2
                                const float pairs = add_right(sums[0][r] + sums[1][r], PATCH / 2);
                                distance[0] = pairs + from_right(sums[0][r], PATCH / 2);
                                distance[1] = sums[1][r] + from_right(pairs, 1);
#else
                                distance[0] = add_right(sums[0][r] + sums[1][r], PATCH / 2);
                                distance[1] = add_right(sums[1][r] + from_right(sums[0][r], 1), PATCH / 2);
#endif
                                #pragma unroll
                                for (int c = 0; c < COLUMNS; ++c) {
                                    const int n = r * COLUMNS + c;
                                    const uint key = (as_uint(distance[c]) & ~INDEX_MASK) | (uint)rank[dy * WINDOW];
                                    offer_key(best[n], pending + n * PENDING * GROUP_SIZE + item, &count[n], key);
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
                for (int n = 0; n < ROWS * COLUMNS; ++n) {
                    if (due || count[n] > PENDING - CHUNK) {
                        insert_pending(best[n], pending + n * PENDING * GROUP_SIZE + item, count[n]);
                        count[n] = 0;
                    }
                }
                if (due)
                    next = next_insertion(seen);
            }
            }
        }
    }
    #pragma unroll
    for (int n = 0; n < ROWS * COLUMNS; ++n) {
        const int row = group_reference(get_group_id(1), ly * ROWS + n / COLUMNS, REFERENCES_Y, regular_y, rows);
        const int column = group_reference(get_group_id(0), lx * COLUMNS + n % COLUMNS, REFERENCES_X, regular_x, columns);
        if (row >= 0 && column >= 0)
            store_matches(best[n], pending + n * PENDING * GROUP_SIZE + item, count[n],
                          keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column, columns);
    }
}
