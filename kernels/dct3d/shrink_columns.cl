// Sliding DCT of cubes for GPUs: a work-item takes all cubes of a column, from slice to slice, and keeps in registers the spectra
// of the last slices and what its cubes add to them; a work-group adds up those of its columns, and each voxel has its own item.
//
// Reference: Manjon et al. 2012, section 2.2 (ODCT3D).
// Grid: (blocks of GROUP_X - CUBE_X + 1 columns * GROUP_X, the same in y, blocks of DEPTH slices * volumes), groups of
//   GROUP_X x GROUP_Y.
// Constants: CUBE_Z, CUBE_Y, CUBE_X; STEP_Z, STEP_Y, STEP_X, spacing of cubes; GROUP_X, GROUP_Y; DEPTH; ROWS, the rows of cubes
//   that are exchanged at a time, of CUBE_Y; SIGMA_MAP.
// Shapes: tile (nt, tile_nz, tile_ny, tile_nx), which lies at (tile_z, tile_y, tile_x) of a volume (length_z, length_y, length_x);
//   out (nt, nz, ny, nx), at (z0, y0, x0) of it; levels (nt, tile_nz); variation (tile_ny, tile_nx).
// Cost for cubes of 4 x 4 x 4: 740 instructions a cube, which is a voxel: 80 and 80 within a slice, 160 and 160 along z, 190 to
//   choose, 64 to add. At the borders of groups 1.4 to 1.8 times as many cubes as voxels are filtered.
// Sums are added in the order of the cubes along z, then x, then y, wherever a group begins.

#define LANES 1
#include "common/lanes.h"
#include "common/mirror.h"
#include "dct3d/cube_transform.h"

#define WIDE (GROUP_X + CUBE_X - 1)
#define HIGH (GROUP_Y + CUBE_Y - 1)
#define COPIES ((HIGH * WIDE + GROUP_Y * GROUP_X - 1) / (GROUP_Y * GROUP_X))

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void shrink_columns(__global const float *tile, int tile_nz, int tile_ny, int tile_nx, int tile_z, int tile_y, int tile_x,
                    int nz, int ny, int nx, int z0, int y0, int x0, int length_z, int length_y, int length_x,
                    __global const float *levels, float threshold, __global const float *variation, __global float *out)
{
    __local float slice[HIGH * WIDE];
    __local float parts[ROWS * CUBE_X][GROUP_Y * GROUP_X];
    __local float part_weights[GROUP_Y * GROUP_X];
    const int i = get_local_id(0);
    const int j = get_local_id(1);
    const int me = j * GROUP_X + i;
    const int blocks = (nz + DEPTH - 1) / DEPTH;
    const int volume = get_global_id(2) / blocks;
    const int front = get_global_id(2) % blocks * DEPTH;
    // Where the cubes of this column begin, and the voxel of this item: the same place of the volume.
    const int left = x0 + (int)get_group_id(0) * (GROUP_X - CUBE_X + 1) - (CUBE_X - 1);
    const int top = y0 + (int)get_group_id(1) * (GROUP_Y - CUBE_Y + 1) - (CUBE_Y - 1);
    const int x = left + i;
    const int y = top + j;
    const bool yields = i >= CUBE_X - 1 && x < x0 + nx && j >= CUBE_Y - 1 && y < y0 + ny;
    const bool counts = x % STEP_X == 0 && y % STEP_Y == 0 && x < x0 + nx && y < y0 + ny;
    __global const float *source = tile + (size_t)volume * tile_nz * tile_ny * tile_nx;
    float factor = 1.0f;
    if (SIGMA_MAP && counts) {
        const int map_x = mirror_place(x + CUBE_X / 2, length_x) - tile_x;
        const int map_y = mirror_place(y + CUBE_Y / 2, length_y) - tile_y;
        factor = variation[map_y * tile_nx + map_x];
    }
    // Slice by slice: spectra, sums of what cubes add, and their weights.
    float spectra[64];
    float totals[64];
    float weights[CUBE_Z];
    // Variances of the slices of a cube.
    float noise[CUBE_Z];
    #pragma unroll
    for (int k = 0; k < 64; ++k)
        spectra[k] = totals[k] = 0.0f;
    #pragma unroll
    for (int k = 0; k < CUBE_Z; ++k)
        weights[k] = noise[k] = 0.0f;
    // Where this item reads each slice from. Beyond what cubes need there may be nothing.
    int places[COPIES];
    #pragma unroll
    for (int k = 0; k < COPIES; ++k) {
        const int at = me + k * (GROUP_Y * GROUP_X);
        const int from_y = clamp(mirror_place(top + at / WIDE, length_y) - tile_y, 0, tile_ny - 1);
        const int from_x = clamp(mirror_place(left + at % WIDE, length_x) - tile_x, 0, tile_nx - 1);
        places[k] = from_y * tile_nx + from_x;
    }
    const int first = z0 + front - (CUBE_Z - 1);
    const int last = min(z0 + front + DEPTH, z0 + nz) - 1;
    // In each turn cubes begin in slice z, and the last slice they reach is new. Before the first there are only slices.
    for (int z = first - (CUBE_Z - 1); z <= last; ++z) {
        const int from_z = mirror_place(z + CUBE_Z - 1, length_z) - tile_z;
        __global const float *plane = source + (size_t)from_z * tile_ny * tile_nx;
        #pragma unroll
        for (int k = 0; k < COPIES; ++k)
            if (me + k * (GROUP_Y * GROUP_X) < HIGH * WIDE)
                slice[me + k * (GROUP_Y * GROUP_X)] = plane[places[k]];
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int k = 0; k < CUBE_Z - 1; ++k)
            noise[k] = noise[k + 1];
        const float level = levels[volume * tile_nz + from_z];
        noise[CUBE_Z - 1] = level * level;
        #pragma unroll
        for (int k = 0; k < 64 - SLICE; ++k)
            spectra[k] = spectra[k + SLICE];
        if (counts) {
            #pragma unroll
            for (int k = 0; k < SLICE; ++k)
                spectra[64 - SLICE + k] = slice[(j + k / CUBE_X) * WIDE + i + k % CUBE_X];
            forward_slice(spectra, 64 - SLICE);
        }
        if (z < first)
            barrier(CLK_LOCAL_MEM_FENCE);
        else {
            if (counts && z % STEP_Z == 0) {
                float cube[64];
                #pragma unroll
                for (int k = 0; k < 64; ++k)
                    cube[k] = spectra[k];
                forward_depth(cube);
                float squares = 0.0f;
                #pragma unroll
                for (int k = 0; k < CUBE_Z; ++k)
                    squares += noise[k];
                const float limit = 8.0f * threshold * sqrt(squares / CUBE_Z);
                const float weight = take_small(cube, limit * factor);
                backward_depth(cube);
                #pragma unroll
                for (int k = 0; k < 64; ++k)
                    totals[k] = fma(weight, cube[k], totals[k]);
                #pragma unroll
                for (int k = 0; k < CUBE_Z; ++k)
                    weights[k] += weight;
            }
            // No cube to come reaches slice z.
            backward_slice(totals, 0);
            float total = 0.0f;
            float weight = 0.0f;
            part_weights[me] = weights[0];
            #pragma unroll
            for (int dy = CUBE_Y - ROWS; dy >= 0; dy -= ROWS) {
                #pragma unroll
                for (int k = 0; k < ROWS * CUBE_X; ++k)
                    parts[k][me] = totals[dy * CUBE_X + k];
                barrier(CLK_LOCAL_MEM_FENCE);
                if (yields) {
                    #pragma unroll
                    for (int row = ROWS - 1; row >= 0; --row) {
                        // Each row for itself, as each addition waits for the one before.
                        float row_total = 0.0f;
                        float row_weight = 0.0f;
                        #pragma unroll
                        for (int k = CUBE_X - 1; k >= 0; --k) {
                            const int from = me - (dy + row) * GROUP_X - k;
                            row_total += parts[row * CUBE_X + k][from];
                            row_weight += part_weights[from];
                        }
                        total += row_total;
                        weight += row_weight;
                    }
                }
                if (dy > 0)
                    barrier(CLK_LOCAL_MEM_FENCE);
            }
            if (yields && z >= z0 + front) {
                const float noisy = source[((size_t)(z - tile_z) * tile_ny + y - tile_y) * tile_nx + x - tile_x];
                out[(((size_t)volume * nz + z - z0) * ny + y - y0) * nx + x - x0] = noisy - total / (64.0f * weight);
            }
            #pragma unroll
            for (int k = 0; k < 64 - SLICE; ++k)
                totals[k] = totals[k + SLICE];
            #pragma unroll
            for (int k = 64 - SLICE; k < 64; ++k)
                totals[k] = 0.0f;
            #pragma unroll
            for (int k = 0; k < CUBE_Z - 1; ++k)
                weights[k] = weights[k + 1];
            weights[CUBE_Z - 1] = 0.0f;
        }
    }
}
