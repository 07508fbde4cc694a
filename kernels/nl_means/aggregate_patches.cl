// Joins the estimates of overlapping patches: each pixel averages those that cover it, with tent-shaped weights.
//
// Reference: Davy and Ehret 2020, section 4.3.5. Pixels gather in a fixed order instead of adding atomically, so repeated runs
//   are bitwise equal, at no cost.
// Grid: (nx, ny, frames) of the region written.
// Constants: PATCH, STEP; SQUARES = 1 where the estimates are squares: yields their roots, 0 for negative squares.
// Shapes: estimates (frames, rows, columns, PATCH, PATCH); tile (ring, tile_nz, tile_ny, tile_nx), the noisy pixels, the first
//   frame in slot `first`; out (frames = nt * nz, ny, nx), whose first pixel is (t0, z0, y0, x0) of the tile.
// Sums are relative to the noisy pixel, so that a constant image is returned to the last bit.

#include "common/patch_grid.h"
#include "common/pixel_item.h"
#include "common/frame_ring.h"

#define COVERING ((PATCH + STEP - 1) / STEP + 1)

static inline float tent(int i)
{
    return (float)min(i + 1, PATCH - i);
}

__kernel void aggregate_patches(__global const float *estimates,
                                int first_y, int last_y, int rows,
                                int first_x, int last_x, int columns,
                                __global const float *tile, int first, int ring, int tile_nz, int tile_ny, int tile_nx,
                                int t0, int z0, int y0, int x0, int nz, int ny, int nx,
                                int first_out, __global float *out)
{
    PIXEL_OF_ITEM(nx, ny)
    const int frame = image;
    const int ty = y + y0;
    const int tx = x + x0;
    const size_t tile_frame = (size_t)ring_slot(first, frame / nz + t0, ring) * tile_nz + frame % nz + z0;
    const float level = tile[(tile_frame * tile_ny + ty) * tile_nx + tx];
    const int row_stop = grid_last_covering(ty, first_y, last_y, rows);
    const int column_stop = grid_last_covering(tx, first_x, last_x, columns);
    const int row_start = grid_first_covering(ty, first_y);
    const int column_start = grid_first_covering(tx, first_x);
    float total = 0.0f;
    float weights = 0.0f;
    // At most so many patches cover a pixel along an axis; their loads overlap.
    #pragma unroll 4
    for (int k = 0; k < COVERING; ++k) {
        const int r = row_start + k;
        const int i = ty - grid_position(r, first_y, last_y);
        #pragma unroll 4
        for (int l = 0; l < COVERING; ++l) {
            const int c = column_start + l;
            const int j = tx - grid_position(c, first_x, last_x);
            if (r <= row_stop && c <= column_stop) {
                const float w = tent(i) * tent(j);
                const size_t patch = ((size_t)frame * rows + r) * columns + c;
                total = fma(w, estimates[patch * (PATCH * PATCH) + i * PATCH + j] - level, total);
                weights += w;
            }
        }
    }
    const float mean = level + total / weights;
    out[((size_t)(frame + first_out) * ny + y) * nx + x] = SQUARES ? sqrt(fmax(mean, 0.0f)) : mean;
}
