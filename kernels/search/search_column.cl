// Finds the NEIGHBOURS most similar patches of each reference patch on a GPU, for any patch and step.
//
// Reference: Davy and Ehret 2020, sections 4.1.3 and 4.1.5. A work-item compares one column of the image with a shifted one and
//   sums the squared differences for every row of patches of the work-group at once. The distance of a patch is the sum of
//   PATCH such column sums, read from local memory. CHUNK neighbouring shifts are compared between two barriers, so that
//   every work-item has a column to compare.
// Grid: groups of (GROUP_X, GROUP_Y) references, frames in z; see common/search_group.h.
// Constants: PATCH, STEP, WINDOW, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y, CHUNK, with
//   CHUNK * ((GROUP_X - 1) * STEP + PATCH) <= GROUP_X * GROUP_Y.
// Shapes: padded as pad_far writes it with SPLIT = 1; ranks and keys as in search_square.
// Cost of a reference and offset at STEP = 1: about 2 + 2 + PATCH operations, PATCH + 3 words of local memory.

#include "common/patch_grid.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
#include "common/best_matches.h"
#include "common/search_group.h"

#define COLUMNS ((GROUP_X - 1) * STEP + PATCH)
#define HEIGHT ((GROUP_Y - 1) * STEP + PATCH)
#define CHUNKS ((WINDOW + CHUNK - 1) / CHUNK)
#define TILE_X (COLUMNS + CHUNKS * CHUNK)
#define TILE_Y (HEIGHT + WINDOW - 1)

// Sums PATCH squares for each row of patches. With STEP = 1, sums of 1, 2, 4, ... squares are formed once and combined.
static inline void column_sums(float *squares, float *sums)
{
#if STEP == 1
    int offset = 0;
    #pragma unroll
    for (int r = 0; r < GROUP_Y; ++r)
        sums[r] = 0.0f;
    #pragma unroll
    for (int width = 1; width <= PATCH; width *= 2) {
        if (PATCH & width) {
            #pragma unroll
            for (int r = 0; r < GROUP_Y; ++r)
                sums[r] += squares[r + offset];
            offset += width;
        }
        #pragma unroll
        for (int i = 0; i < HEIGHT; ++i)
            if (2 * width <= PATCH && i + 2 * width <= HEIGHT)
                squares[i] += squares[i + width];
    }
#else
    #pragma unroll
    for (int r = 0; r < GROUP_Y; ++r) {
        float sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < PATCH; ++i)
            sum += squares[r * STEP + i];
        sums[r] = sum;
    }
#endif
}

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_column(__global const float *padded, int pnz, int pny, int pitch,
                   int t0, int z0, int y0, int x0, int nz,
                   int first_y, int last_y, int rows, int first_x, int last_x, int columns,
                   int regular_y, int regular_x,
                   int frames_before, int frames_after, int slices,
                   __global const int *ranks, __global uint *keys)
{
    __local float tile[TILE_Y * TILE_X];
    __local float partial[CHUNK][GROUP_Y][COLUMNS];
    __local uint pending[PENDING * GROUP_SIZE];

    const int lx = get_local_id(0);
    const int ly = get_local_id(1);
    const int item = ly * GROUP_X + lx;
    const int frame = get_global_id(2);
    const int row = group_reference(get_group_id(1), ly, GROUP_Y, regular_y, rows);
    const int column = group_reference(get_group_id(0), lx, GROUP_X, regular_x, columns);
    const bool mine = row >= 0 && column >= 0;
    const int top = y0 + group_origin(get_group_id(1), GROUP_Y, regular_y, first_y, last_y);
    const int left = x0 + group_origin(get_group_id(0), GROUP_X, regular_x, first_x, last_x);
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane;

    // The column, and the shift within each chunk, that this item compares throughout.
    const int my_column = item % COLUMNS;
    const int my_shift = item / COLUMNS;
    const bool compares = my_shift < CHUNK;
    float reference[HEIGHT];
    #pragma unroll
    for (int i = 0; i < HEIGHT; ++i)
        reference[i] = padded_pixel(here, pny, pitch, top + i, left + my_column);

    uint best[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_MATCH;
    int count = 0;
    int seen = 0;
    int next = 1;

    for (int dt = -frames_before; dt <= frames_after; ++dt)
    for (int dz = -slices; dz <= slices; ++dz) {
        __global const float *there = here + ((long)dt * pnz + dz) * (long)plane;
        barrier(CLK_LOCAL_MEM_FENCE);
        copy_pixels(tile, TILE_Y, TILE_X, item, GROUP_SIZE, there, pny, pitch, top - WINDOW / 2, left - WINDOW / 2);
        barrier(CLK_LOCAL_MEM_FENCE);

        for (int nth = 0; nth < WINDOW; ++nth) {
            const int dy = from_middle(nth, WINDOW);
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                const int offsets = min(CHUNK, WINDOW - chunk * CHUNK);
                if (compares) {
                    __local const float *shifted = tile + dy * TILE_X + my_column + chunk * CHUNK + my_shift;
                    float squares[HEIGHT];
                    #pragma unroll
                    for (int i = 0; i < HEIGHT; ++i) {
                        const float e = reference[i] - shifted[i * TILE_X];
                        squares[i] = e * e;
                    }
                    float sums[GROUP_Y];
                    column_sums(squares, sums);
                    #pragma unroll
                    for (int r = 0; r < GROUP_Y; ++r)
                        partial[my_shift][r][my_column] = sums[r];
                }
                barrier(CLK_LOCAL_MEM_FENCE);
                if (mine) {
                    __global const int *rank = ranks + chunk * CHUNK
                        + (((dt + frames_before) * (2 * slices + 1) + dz + slices) * WINDOW + dy) * WINDOW;
                    #pragma unroll
                    for (int d = 0; d < CHUNK; ++d) {
                        float sum = 0.0f;
                        #pragma unroll
                        for (int j = 0; j < PATCH; ++j)
                            sum += partial[d][ly][lx * STEP + j];
                        if (d < offsets) {
                            const uint key = (as_uint(sum) & ~INDEX_MASK) | (uint)rank[d];
                            offer_key(best, pending + item, &count, key);
                        }
                    }
                    keep_pending(best, pending + item, &count, offsets, &seen, &next);
                }
                barrier(CLK_LOCAL_MEM_FENCE);
            }
        }
    }
    if (mine)
        store_matches(best, pending + item, count,
                      keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column, columns);
}
