// Finds the NEIGHBOURS most similar cubes of each reference cube on a GPU.
//
// Reference: Maggioni et al. 2013, section III; lists of the best as in Davy and Ehret 2020, section 4.1.5. A work-item holds its
//   reference in registers and compares CHUNK neighbouring cubes along x at once, so that each voxel it reads serves up to CX of
//   them. The work-group shares the planes that it searches in local memory: a ring of CZ planes, one of which is new for each
//   displacement along z.
// Grid: groups of (GROUP_X, GROUP_Y) references along x and y, volumes times layers of references.
// Constants: those of cubes.h, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y, CHUNK (displacements along x compared at once), CHUNKS;
//   PITCH (length of a row in local memory) and SKEW (moves the next row of references on), so that rows of references meet
//   different banks.
// Shapes: padded (volumes, pnz, pny, pitch), FAR around the volume, references in those from v0 on; ranks (WINDOW_Z, WINDOW_Y, WINDOW_X): place of a displacement
//   in the table of offsets; keys (volumes, layers, rows, NEIGHBOURS, columns), sorted.
// Cost of a reference: 128 operations a candidate, 64 (CHUNK + CX - 1) / (CX CHUNK) words of local memory.

#include "bm4d/cubes.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
#include "common/best_matches.h"

#define TILE_X ((GROUP_X - 1) * STEP_X + CX + CHUNK * CHUNKS - 1)
#define TILE_Y ((GROUP_Y - 1) * STEP_Y + CY + WINDOW_Y - 1)
#define TILE_ROW(y) ((y) * PITCH + (y) / STEP_Y * SKEW)
#define PLANE TILE_ROW(TILE_Y)

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_cubes(__global const float *padded, PLACE_ARGUMENTS, __global const int *ranks, __global uint *keys)
{
    __local float planes[CZ * PLANE];
    __local uint pending[PENDING * GROUP_SIZE];

    const int item = get_local_id(1) * GROUP_X + get_local_id(0);
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    const int volume = get_global_id(2) / layers;
    const int layer = get_global_id(2) % layers;
    // Beyond the last reference, items search with it and discard what they find.
    const int top = ALONG_Y(get_group_id(1) * GROUP_Y);
    const int left = ALONG_X(get_group_id(0) * GROUP_X);
    const int y = ALONG_Y(row);
    const int x = ALONG_X(column);
    const int z = ALONG_Z(layer);
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)(volume + v0) * pnz + z0 + z) * plane;

    float reference[CUBE];
    #pragma unroll
    for (int k = 0; k < CUBE; ++k)
        reference[k] = here[k / (CY * CX) * plane + (size_t)(y0 + y + k / CX % CY) * pitch + x0 + x + k % CX];

    uint best[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_MATCH;
    int waiting = 0;
    int seen = 0;
    int next = 1;

    for (int dz = -(WINDOW_Z / 2); dz <= WINDOW_Z / 2; ++dz) {
        barrier(CLK_LOCAL_MEM_FENCE);
        // All planes at first, then the last one.
        for (int c = dz == -(WINDOW_Z / 2) ? 0 : CZ - 1; c < CZ; ++c) {
            __global const float *there = here + (long)(dz + c) * (long)plane;
            __local float *copy = planes + (dz + c + 8 * CZ * WINDOW_Z) % CZ * PLANE;
            for (int k = item; k < TILE_Y * TILE_X; k += GROUP_SIZE) {
                const int py = clamp(y0 + top - WINDOW_Y / 2 + k / TILE_X, 0, pny - 1);
                const int px = clamp(x0 + left - WINDOW_X / 2 + k % TILE_X, 0, pitch - 1);
                copy[TILE_ROW(k / TILE_X) + k % TILE_X] = there[(size_t)py * pitch + px];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        for (int dy = 0; dy < WINDOW_Y; ++dy) {
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                float sums[CHUNK];
                #pragma unroll
                for (int d = 0; d < CHUNK; ++d)
                    sums[d] = 0.0f;
                #pragma unroll
                for (int c = 0; c < CZ; ++c) {
                    __local const float *shifted = planes + (dz + c + 8 * CZ * WINDOW_Z) % CZ * PLANE
                                                   + x - left + chunk * CHUNK;
                    #pragma unroll
                    for (int i = 0; i < CY; ++i) {
                        __local const float *line = shifted + TILE_ROW(y - top + dy + i);
                        float values[CHUNK + CX - 1];
                        #pragma unroll
                        for (int j = 0; j < CHUNK + CX - 1; ++j)
                            values[j] = line[j];
                        #pragma unroll
                        for (int d = 0; d < CHUNK; ++d) {
                            #pragma unroll
                            for (int j = 0; j < CX; ++j) {
                                const float e = reference[(c * CY + i) * CX + j] - values[d + j];
                                sums[d] = fma(e, e, sums[d]);
                            }
                        }
                    }
                }
                const int offsets = min(CHUNK, WINDOW_X - chunk * CHUNK);
                __global const int *rank = ranks
                    + ((dz + WINDOW_Z / 2) * WINDOW_Y + dy) * WINDOW_X + chunk * CHUNK;
                #pragma unroll
                for (int d = 0; d < CHUNK; ++d)
                    if (d < offsets)
                        offer_key(best, pending + item, &waiting, (as_uint(sums[d]) & ~INDEX_MASK) | (uint)rank[d]);
                keep_pending(best, pending + item, &waiting, offsets, &seen, &next);
            }
        }
    }
    if (row < rows && column < columns)
        store_matches(best, pending + item, waiting,
                      keys + (((size_t)volume * layers + layer) * rows + row) * NEIGHBOURS * columns + column, columns);
}
