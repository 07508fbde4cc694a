// Finds the NEIGHBOURS most similar patches of each reference patch on a GPU, where the step does not divide the patch.
//
// Reference: Davy and Ehret 2020, sections 4.1.3 to 4.1.5. A work-item compares a strip of the image, STEP pixels wide and as tall
//   as all patches of the work-group together, with SHIFTS neighbouring shifted ones. Sums over blocks of STEP x STEP pixels
//   are added up down the strip in registers, for every row of patches; the distance of a patch is the sum over its strips,
//   which neighbouring patches share through local memory. Of its last block, along both axes, a patch covers REST pixels.
// Grid: groups of (GROUP_X, GROUP_Y) strips and rows of references, frames in z; see common/search_group.h.
// Constants: PATCH, STEP (less than PATCH), WINDOW, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y, SHIFTS.
// Shapes: padded as pad_far writes it with SPLIT = 1; ranks and keys as in search_square.
// Cost of a reference and offset: about 2 HEIGHT STEP / GROUP_Y + 6 operations, HEIGHT (STEP + SHIFTS - 1) / (SHIFTS GROUP_Y) +
//   2 + PATCH / STEP words of local memory.

#include "common/patch_grid.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
// Row ly of the work-group compares shifts ly * SHIFTS to ly * SHIFTS + SHIFTS - 1 of a chunk.
#define CHUNK (GROUP_Y * SHIFTS)
#include "common/best_matches.h"
#include "common/search_group.h"

#define WHOLE (PATCH / STEP)
#define REST (PATCH % STEP)
#define STRIPS (WHOLE + (REST > 0))
#define REFERENCES_X (GROUP_X - STRIPS + 1)
#define HEIGHT ((GROUP_Y - 1) * STEP + PATCH)
#define BLOCKS (GROUP_Y - 1 + STRIPS)
#define CHUNKS ((WINDOW + CHUNK - 1) / CHUNK)
#define TILE_X (GROUP_X * STEP + CHUNKS * CHUNK)
#define TILE_Y (HEIGHT + WINDOW - 1)

// Sums over the whole width of a strip, and over its first REST columns.
typedef struct {
    float wide, narrow;
} Sums;

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_strips(__global const float *padded, int pnz, int pny, int pitch,
                   int t0, int z0, int y0, int x0, int nz,
                   int first_y, int last_y, int rows, int first_x, int last_x, int columns,
                   int regular_y, int regular_x,
                   int frames_before, int frames_after, int slices,
                   __global const int *ranks, __global uint *keys)
{
    __local float tile[TILE_Y * TILE_X];
    __local float wide[CHUNK][GROUP_Y][GROUP_X];
    __local float narrow[REST > 0 ? CHUNK : 1][GROUP_Y][GROUP_X];
    __local uint pending[PENDING * GROUP_SIZE];

    const int lx = get_local_id(0);
    const int ly = get_local_id(1);
    const int item = ly * GROUP_X + lx;
    const int frame = get_global_id(2);
    const int row = group_reference(get_group_id(1), ly, GROUP_Y, regular_y, rows);
    const int column = group_reference(get_group_id(0), lx, REFERENCES_X, regular_x, columns);
    const bool mine = row >= 0 && column >= 0;
    const int top = y0 + group_origin(get_group_id(1), GROUP_Y, regular_y, first_y, last_y);
    const int left = x0 + group_origin(get_group_id(0), REFERENCES_X, regular_x, first_x, last_x);
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane;

    float strip[HEIGHT][STEP];
    #pragma unroll
    for (int i = 0; i < HEIGHT; ++i) {
        #pragma unroll
        for (int j = 0; j < STEP; ++j)
            strip[i][j] = padded_pixel(here, pny, pitch, top + i, left + lx * STEP + j);
    }

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

        for (int step = 0; step < WINDOW * CHUNKS; ++step) {
            const int dy = from_middle(step / CHUNKS, WINDOW);
            const int chunk = from_middle(step % CHUNKS, CHUNKS);
            const int offsets = min(CHUNK, WINDOW - chunk * CHUNK);
            __local const float *shifted = tile + dy * TILE_X + lx * STEP + chunk * CHUNK + ly * SHIFTS;
            Sums whole[BLOCKS][SHIFTS];
            #pragma unroll
            for (int b = 0; b < BLOCKS; ++b) {
                Sums first[SHIFTS];  // of the first REST rows
                float within[SHIFTS], beside[SHIFTS];
                #pragma unroll
                for (int d = 0; d < SHIFTS; ++d)
                    within[d] = beside[d] = first[d].wide = first[d].narrow = 0.0f;
                #pragma unroll
                for (int i = 0; i < STEP; ++i) {
                    if (b * STEP + i < HEIGHT) {
                        float run[STEP + SHIFTS - 1];
                        #pragma unroll
                        for (int k = 0; k < STEP + SHIFTS - 1; ++k)
                            run[k] = shifted[(b * STEP + i) * TILE_X + k];
                        #pragma unroll
                        for (int d = 0; d < SHIFTS; ++d) {
                            #pragma unroll
                            for (int j = 0; j < STEP; ++j) {
                                const float e = strip[b * STEP + i][j] - run[j + d];
                                if (j < REST)
                                    within[d] = fma(e, e, within[d]);
                                else
                                    beside[d] = fma(e, e, beside[d]);
                            }
                            if (i == REST - 1) {
                                first[d].narrow = within[d];
                                first[d].wide = within[d] + beside[d];
                            }
                        }
                    }
                }
                #pragma unroll
                for (int d = 0; d < SHIFTS; ++d) {
                    whole[b][d].narrow = within[d];
                    whole[b][d].wide = within[d] + beside[d];
                    if (b >= STRIPS - 1) {
                        const int r = b - STRIPS + 1;
                        Sums sums = first[d];
                        #pragma unroll
                        for (int k = 0; k < WHOLE; ++k) {
                            sums.wide += whole[r + k][d].wide;
                            sums.narrow += whole[r + k][d].narrow;
                        }
                        wide[ly * SHIFTS + d][r][lx] = sums.wide;
                        if (REST > 0)
                            narrow[ly * SHIFTS + d][r][lx] = sums.narrow;
                    }
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (mine) {
                __global const int *rank = ranks + chunk * CHUNK
                    + (((dt + frames_before) * (2 * slices + 1) + dz + slices) * WINDOW + dy) * WINDOW;
                #pragma unroll
                for (int d = 0; d < CHUNK; ++d) {
                    if (d < offsets) {
                        float sum = REST > 0 ? narrow[d][ly][lx + WHOLE] : 0.0f;
                        #pragma unroll
                        for (int k = 0; k < WHOLE; ++k)
                            sum += wide[d][ly][lx + k];
                        const uint key = (as_uint(sum) & ~INDEX_MASK) | (uint)rank[d];
                        offer_key(best, pending + item, &count, key);
                    }
                }
                keep_pending(best, pending + item, &count, offsets, &seen, &next);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    if (mine)
        store_matches(best, pending + item, count,
                      keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column, columns);
}
