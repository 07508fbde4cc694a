// Finds the NEIGHBOURS most similar cubes of each reference cube as search_cubes does, but on a CPU: a work-item serves LANES
// neighbouring references at once, one in each lane of a vector. With LANES = 1 it runs on any device.
//
// Reference: Maggioni et al. 2013, section III; Davy and Ehret 2020, section 4.1.2.
// Grid: (groups of LANES references along x, rows of references, volumes times layers); one more group in each row serves the
//   last reference where that is not on the regular grid.
// Constants: those of cubes.h, NEIGHBOURS, INDEX_BITS, LANES (1, 4, 8, 16), SPLIT (1 if LANES = 1, else STEP_X), CHUNK
//   (displacements along x compared at once), CHUNKS.
// Shapes: padded as pad_far writes it, in SPLIT phases; ranks and keys as in search_cubes.
// Cost of a reference: 128 operations a candidate.

#include "bm4d/cubes.h"
#include "common/match_key.h"
#include "common/key_lanes.h"
#include "search/row_lanes.h"

#define VALUES (CHUNK * CHUNKS + CX - 1)

__kernel void search_cube_lanes(__global const float *padded, PLACE_ARGUMENTS, int regular_groups,
                                __global const int *ranks, __global uint *keys)
{
    const int group = get_global_id(0);
    const int row = get_global_id(1);
    const int volume = get_global_id(2) / layers;
    const int layer = get_global_id(2) % layers;
    const int x = x0 + lanes_x(group, regular_groups, first_x, last_x, STEP_X);
    const int y = y0 + ALONG_Y(row);
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)(volume + v0) * pnz + z0 + ALONG_Z(layer)) * plane;

    // Where the columns of the references, and of the window, are in memory.
    int own[CX];
    for (int j = 0; j < CX; ++j)
        own[j] = column_place(x + j, pitch);
    int others[VALUES];
    for (int j = 0; j < VALUES; ++j)
        others[j] = column_place(x - WINDOW_X / 2 + j, pitch);

    KEY best[NEIGHBOURS];
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = (KEY)NO_MATCH;

    for (int dz = 0; dz < WINDOW_Z; ++dz) {
        for (int dy = 0; dy < WINDOW_Y; ++dy) {
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                REAL sums[CHUNK];
                #pragma unroll
                for (int d = 0; d < CHUNK; ++d)
                    sums[d] = (REAL)0.0f;
                for (int line = 0; line < CZ * CY; ++line) {
                    __global const float *a = here + line / CY * plane + (size_t)(y + line % CY) * pitch;
                    __global const float *b = a + (long)(dz - WINDOW_Z / 2) * (long)plane + (dy - WINDOW_Y / 2) * pitch;
                    REAL reference[CX];
                    #pragma unroll
                    for (int j = 0; j < CX; ++j)
                        reference[j] = LOAD(a + own[j]);
                    #pragma unroll
                    for (int k = 0; k < CHUNK + CX - 1; ++k) {
                        const REAL value = LOAD(b + others[chunk * CHUNK + k]);
                        #pragma unroll
                        for (int j = 0; j < CX; ++j) {
                            if (k - j >= 0 && k - j < CHUNK) {
                                const REAL e = reference[j] - value;
                                sums[k - j] = fma(e, e, sums[k - j]);
                            }
                        }
                    }
                }
                __global const int *rank = ranks + (dz * WINDOW_Y + dy) * WINDOW_X + chunk * CHUNK;
                for (int d = 0; d < min(CHUNK, WINDOW_X - chunk * CHUNK); ++d)
                    insert_lanes(best, (AS_KEY(sums[d]) & ~INDEX_MASK) | (uint)rank[d]);
            }
        }
    }

    __global uint *out = keys + (((size_t)volume * layers + layer) * rows + row) * NEIGHBOURS * columns;
    store_lanes(best, out, group, regular_groups, first_x, last_x, STEP_X, columns);
}
