// Finds the NEIGHBOURS most similar patches of each reference patch on a GPU, where patches overlap little or not at all.
//
// Reference: Davy and Ehret 2020, section 4.1.2, with the pixels that a work-group can reach in local memory. A work-item holds a
//   reference patch in registers and compares CHUNK neighbouring shifts of it at once: a row of pixels is read once for all.
// Grid: groups of (GROUP_X, GROUP_Y) references, frames in z; see common/search_group.h.
// Constants: PATCH (at most 8), STEP, WINDOW, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y; LINE, values from row to row of local
//   memory.
// Shapes: padded as pad_far writes it with SPLIT = 1; ranks and keys as in search_square. In local memory a row holds first all
//   columns with x % STEP = 0, then those with 1, and so on, so that neighbouring references read neighbouring words.
// Cost of a reference and offset: 2 PATCH^2 operations, PATCH (PATCH + CHUNK - 1) / CHUNK words of local memory.

#include "common/patch_grid.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
// A multiple of STEP: the place of every pixel but for the chunk is then a constant.
#define CHUNK STEP
#include "common/best_matches.h"
#include "common/search_group.h"

#define CHUNKS ((WINDOW + CHUNK - 1) / CHUNK)
#define TILE_X (LINE / STEP * STEP)
#define TILE_Y ((GROUP_Y - 1) * STEP + PATCH + WINDOW - 1)
#define LAST_CHUNK (WINDOW - (CHUNKS - 1) * CHUNK)
// Place of column x in a row.
#define PLACE(x) ((x) % STEP * (TILE_X / STEP) + (x) / STEP)

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_whole(TILE_ARGUMENTS, int regular_y, int regular_x, int frames_before, int frames_after, int slices,
                  __global const int *ranks, __global uint *keys)
{
    __local float tile[TILE_Y * LINE];
    __local uint pending[PENDING * GROUP_SIZE];

    REFERENCE_OF_ITEM(GROUP_Y, GROUP_X)

    float patch[PATCH][PATCH];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            patch[i][j] = padded_pixel(here, pny, pitch, top + ly * STEP + i, left + lx * STEP + j);
    }

    uint best[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_MATCH;
    int waiting = 0;
    int seen = 0;
    int next = 1;

    for (int dt = -frames_before; dt <= frames_after; ++dt)
    for (int dz = -slices; dz <= slices; ++dz) {
        __global const float *there = here + ((long)dt * pnz + dz) * (long)plane;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < TILE_Y * TILE_X; k += GROUP_SIZE)
            tile[k / TILE_X * LINE + PLACE(k % TILE_X)] =
                padded_pixel(there, pny, pitch, top - WINDOW / 2 + k / TILE_X, left - WINDOW / 2 + k % TILE_X);
        barrier(CLK_LOCAL_MEM_FENCE);

        if (mine) {
            for (int step = 0; step < WINDOW * CHUNKS; ++step) {
                const int dy = from_middle(step / CHUNKS, WINDOW);
                const int chunk = from_middle(step % CHUNKS, CHUNKS);
                const int offsets = min(CHUNK, WINDOW - chunk * CHUNK);
                __local const float *shifted = tile + (ly * STEP + dy) * LINE + lx + chunk;
                float sums[CHUNK];
                #pragma unroll
                for (int d = 0; d < CHUNK; ++d)
                    sums[d] = 0.0f;
                #pragma unroll
                for (int i = 0; i < PATCH; ++i) {
                    float run[PATCH + CHUNK - 1];
                    #pragma unroll
                    for (int k = 0; k < PATCH + CHUNK - 1; ++k)
                        run[k] = shifted[i * LINE + PLACE(k)];
                    #pragma unroll
                    for (int d = 0; d < CHUNK; ++d) {
                        #pragma unroll
                        for (int j = 0; j < PATCH; ++j) {
                            const float e = patch[i][j] - run[j + d];
                            sums[d] = fma(e, e, sums[d]);
                        }
                    }
                }
                __global const int *rank = ranks + chunk * CHUNK
                    + (((dt + frames_before) * (2 * slices + 1) + dz + slices) * WINDOW + dy) * WINDOW;
                #pragma unroll
                for (int d = 0; d < CHUNK; ++d)
                    if (d < LAST_CHUNK || offsets == CHUNK)
                        offer_key(best, pending + item, &waiting, (as_uint(sums[d]) & ~INDEX_MASK) | (uint)rank[d]);
                keep_pending(best, pending + item, &waiting, offsets, &seen, &next);
            }
        }
    }
    if (mine)
        store_matches(best, pending + item, waiting,
                      keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column, columns);
}
