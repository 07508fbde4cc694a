// Sliding DCT of cubes for CPUs: a work-item filters a block of whole rows, LANES cubes at a time, which lie side by side along x.
//
// Reference: Manjon et al. 2012, section 2.2 (ODCT3D).
// Grid: (blocks of block_y rows, blocks of block_z slices, volumes).
// Constants: CUBE_Z, CUBE_Y, CUBE_X; STEP_Z, STEP_Y, STEP_X, spacing of cubes; LANES; SIGMA_MAP.
// Shapes: copy, as mirror_around makes it; out (nt, nz, ny, nx), at (z0, y0, x0) of a volume (length_z, length_y, length_x);
//   levels (nt, level_nz), whose first is of slice level_z; sums (work-items, 2, block_z, block_y, pitch), whatever they hold;
//   variation as of the tile: (map_ny, map_nx), at (map_y, map_x) of the volume.
// Cost: 1,200 instructions a cube for CUBE_Z = 4, and as many loads and stores; blocks of 16 x 16 rows filter 1.4 times as many
//   cubes as there are voxels.
// Sums are added in the order of the cubes along z, y and x, wherever a block or a vector begins.

#include "common/lanes.h"
#include "common/mirror.h"
#include "dct3d/cube_transform.h"

// The limit for cubes that begin in a slice: `threshold` times the root mean square of sigma in their slices, in the units of a
// spectrum. Slices outside are mirrored; levels begin with that of slice `origin`.
static inline float cube_limit(float threshold, __global const float *levels, int slice, int length, int origin)
{
    float squares = 0.0f;
    for (int z = 0; z < CUBE_Z; ++z) {
        const float level = levels[mirror_place(slice + z, length) - origin];
        squares = fma(level, level, squares);
    }
    return 8.0f * threshold * sqrt(squares / CUBE_Z);
}

__kernel void shrink_rows(__global const float *copy, int pnz, int pny, int pitch,
                          int nz, int ny, int nx, int z0, int y0, int x0, int length_z, int length_y, int length_x,
                          __global const float *levels, int level_z, int level_nz, float threshold,
                          __global const float *variation, int map_y, int map_x, int map_nx,
                          __global float *sums, int block_z, int block_y, __global float *out)
{
    const int volume = get_global_id(2);
    const int top = get_global_id(0) * block_y;
    const int front = get_global_id(1) * block_z;
    const int high = min(block_y, ny - top);
    const int deep = min(block_z, nz - front);
    const size_t item = ((size_t)volume * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
    const size_t block = (size_t)block_z * block_y * pitch;
    __global float *totals = sums + 2 * item * block;
    __global float *weights = totals + block;
    const real none = 0.0f;
    for (size_t k = 0; k < block; k += LANES) {
        PUT(totals + k) = none;
        PUT(weights + k) = none;
    }
    // Places of cubes in the copy; 0 is CUBE - 1 before the first voxel yielded.
    for (int z = front; z < front + deep + CUBE_Z - 1; ++z) {
        const int slice = z0 + z - (CUBE_Z - 1);
        if (slice % STEP_Z != 0)
            continue;
        const float frame_limit = cube_limit(threshold, levels + volume * level_nz, slice, length_z, level_z);
        for (int y = top; y < top + high + CUBE_Y - 1; ++y) {
            const int row = y0 + y - (CUBE_Y - 1);
            if (row % STEP_Y != 0)
                continue;
            for (int x = 0; x < nx + CUBE_X - 1; x += LANES) {
                real cube[64];
                __global const float *corner = copy + (((size_t)volume * pnz + z) * pny + y) * pitch + x;
                for (int k = 0; k < CUBE_Z * CUBE_Y; ++k) {
                    __global const float *line = corner + ((size_t)(k / CUBE_Y) * pny + k % CUBE_Y) * pitch;
                    #pragma unroll
                    for (int dx = 0; dx < CUBE_X; ++dx)
                        cube[k * CUBE_X + dx] = AT(line + dx);
                    FORWARD_X(cube, k * CUBE_X)
                }
                for (int k = 0; k < CUBE_Z * CUBE_X; ++k)
                    FORWARD_Y(cube, k / CUBE_X * SLICE + k % CUBE_X)
                for (int k = 0; k < SLICE; ++k)
                    FORWARD_Z(cube, k)
                real limit = frame_limit;
#if SIGMA_MAP
                float factors[LANES];
                for (int k = 0; k < LANES; ++k) {
                    // Lanes beyond the last cube have no place in the map.
                    const int column = min(x0 + x + k - (CUBE_X - 1), x0 + nx - 1) + CUBE_X / 2;
                    const int map_column = mirror_place(column, length_x) - map_x;
                    const int map_row = mirror_place(row + CUBE_Y / 2, length_y) - map_y;
                    factors[k] = variation[map_row * map_nx + map_column];
                }
                limit *= *(const unaligned_real *)factors;
#endif
                real weight = take_small(cube, limit);
                if (STEP_X > 1) {
                    const whole column = COUNTED + (x0 + x - (CUBE_X - 1) + 8 * STEP_X);
                    weight = select(none, weight, column % STEP_X == 0);
                }
                for (int k = 0; k < SLICE; ++k)
                    BACKWARD_Z(cube, k)
                for (int k = 0; k < CUBE_Z * CUBE_X; ++k)
                    BACKWARD_Y(cube, k / CUBE_X * SLICE + k % CUBE_X)
                for (int k = 0; k < CUBE_Z * CUBE_Y; ++k) {
                    BACKWARD_X(cube, k * CUBE_X)
                    const int dz = z - (CUBE_Z - 1) + k / CUBE_Y - front;
                    const int dy = y - (CUBE_Y - 1) + k % CUBE_Y - top;
                    if (dz < 0 || dz >= deep || dy < 0 || dy >= high)
                        continue;
                    const int line = (dz * block_y + dy) * pitch + x;
                    // From the last column on, so that a voxel gets its cubes in the order of x.
                    #pragma unroll
                    for (int dx = CUBE_X - 1; dx >= 0; --dx) {
                        PUT(totals + line + dx) = fma(weight, cube[k * CUBE_X + dx], AT(totals + line + dx));
                        PUT(weights + line + dx) = AT(weights + line + dx) + weight;
                    }
                }
            }
        }
    }
    for (int z = 0; z < deep; ++z)
        for (int y = 0; y < high; ++y) {
            const int line = (z * block_y + y) * pitch + CUBE_X - 1;
            const size_t from = (((size_t)volume * pnz + front + z + CUBE_Z - 1) * pny + top + y + CUBE_Y - 1) * pitch + CUBE_X - 1;
            __global float *to = out + (((size_t)volume * nz + front + z) * ny + top + y) * nx;
            for (int x = 0; x < nx; ++x)
                to[x] = copy[from + x] - totals[line + x] / (64.0f * weights[line + x]);
        }
}
