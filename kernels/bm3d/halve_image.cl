// Halves images: every pixel is the mean of 2 x 2.
//
// Reference: methods page of BM3D, "several scales".
// Grid: (nx, ny, frames) of the halved images, rounded up to whole work-groups.
// Constants: none.
// Shapes: given (frames, given_ny, given_nx), of which the first pixel used is (top, left); halved (frames, ny, nx). Of an odd
//   length the last pixel is its own mean.

#include "common/pixel_item.h"

__kernel void halve_image(__global const float *given, int given_ny, int given_nx, int top, int left, int ny, int nx,
                          __global float *halved)
{
    PIXEL_OF_ITEM(nx, ny)
    __global const float *pixels = given + image * given_ny * given_nx;
    const size_t above = (size_t)(top + 2 * y) * given_nx;
    const size_t below = (size_t)min(top + 2 * y + 1, given_ny - 1) * given_nx;
    const int before = left + 2 * x;
    const int after = min(before + 1, given_nx - 1);
    const float sum = (pixels[above + before] + pixels[above + after]) + (pixels[below + before] + pixels[below + after]);
    halved[(image * ny + y) * nx + x] = 0.25f * sum;
}
