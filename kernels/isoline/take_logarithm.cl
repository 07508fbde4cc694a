// Takes the logarithm of a speckled tile, which makes speckle additive and the same everywhere.
//
// The logarithm of a gamma variable is sometimes far below its mean, and that of 0 is infinite. Therefore no pixel counts as
// less than a quarter of the mean of the 5 x 5 pixels around it. Signs are ignored.
//
// Reference: methods page, "speckle".
// Grid: (tile_nx, tile_ny, images).
// Constants: none.
// Shapes: tile, logarithm (images, tile_ny, tile_nx), whose first pixel is (tile_y, tile_x) of images of image_ny times image_nx
//   pixels. Where the tile ends but the image does not, the outermost two pixels differ from those of the whole image.
// Cost of a pixel: 25 reads.

#include "common/mirror.h"
#include "common/pixel_item.h"

#define FLOOR 0.25f
// Smallest grey level, where all pixels are 0.
#define DARKEST 1e-30f

__kernel void take_logarithm(__global const float *tile, int tile_ny, int tile_nx, int tile_y, int tile_x,
                             int image_ny, int image_nx, __global float *logarithm)
{
    PIXEL_OF_ITEM(tile_nx, tile_ny)
    const size_t first = image * tile_ny * tile_nx;
    const float weights[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
    float mean = 0.0f;
    #pragma unroll
    for (int j = -2; j <= 2; ++j) {
        const int inside_y = clamp(mirrored(tile_y + y + j, image_ny) - tile_y, 0, tile_ny - 1);
        __global const float *row = tile + first + (size_t)inside_y * tile_nx;
        float of_row = 0.0f;
        #pragma unroll
        for (int i = -2; i <= 2; ++i)
            of_row = fma(weights[i + 2], row[clamp(mirrored(tile_x + x + i, image_nx) - tile_x, 0, tile_nx - 1)], of_row);
        mean = fma(weights[j + 2], of_row, mean);
    }
    const size_t here = first + (size_t)y * tile_nx + x;
    logarithm[here] = log(fmax(fmax(fabs(tile[here]), FLOOR * fabs(mean)), DARKEST));
}
