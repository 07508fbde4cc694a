// Copies a tile into the middle of a larger one and mirrors the image at its borders; the last pixel is not repeated.
// With THICKEN it also averages every pixel with its two neighbours across a line: above and below for lines that run along x,
// left and right for the others.
//
// Reference: methods page, "borders".
// Grid: (pitch, pny, images) of the larger one.
// Constants: THICKEN.
// Shapes: tile (images, tile_ny, tile_nx), whose first pixel is (tile_y, tile_x) of images of image_ny times image_nx pixels;
//   padded, along_x, along_y (images, pny, pitch), whose first pixel is (y0, x0) of them. `share` is the weight of each
//   neighbour.

#include "common/mirror.h"

__kernel void mirror_tile(__global const float *tile, int tile_ny, int tile_nx, int tile_y, int tile_x,
                          int image_ny, int image_nx, int y0, int x0, int pny, int pnx, int pitch,
                          __global float *padded
#if THICKEN
                          , float share, __global float *along_x, __global float *along_y
#endif
                          )
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int image = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    // The end of a row, which only serves alignment, repeats its last pixel.
    const int inner_x = min(px, pnx - 1);
    const int x = mirrored(x0 + inner_x, image_nx) - tile_x;
    __global const float *rows = tile + (size_t)image * tile_ny * tile_nx;
    __global const float *row = rows + (size_t)(mirrored(y0 + py, image_ny) - tile_y) * tile_nx;
    const float level = row[x];
    const size_t here = ((size_t)image * pny + py) * pitch + px;
    padded[here] = level;
#if THICKEN
    const float above = rows[(size_t)(mirrored(y0 + max(py - 1, 0), image_ny) - tile_y) * tile_nx + x];
    const float below = rows[(size_t)(mirrored(y0 + min(py + 1, pny - 1), image_ny) - tile_y) * tile_nx + x];
    const float left = row[mirrored(x0 + max(inner_x - 1, 0), image_nx) - tile_x];
    const float right = row[mirrored(x0 + min(inner_x + 1, pnx - 1), image_nx) - tile_x];
    // Relative to the pixel, so that a constant image is unchanged.
    along_x[here] = fma(share, (above - level) + (below - level), level);
    along_y[here] = fma(share, (left - level) + (right - level), level);
#endif
}
