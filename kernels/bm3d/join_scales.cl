// Replaces the coarse part of a filtered image by one that was filtered at half the size.
//
// Reference: methods page of BM3D, "several scales". out = fine + enlarged(smoothed(coarse - halved(fine))), where the difference
//   is smoothed by 1/4, 1/2, 1/4 along both axes, so that frequencies that patches of the image resolve stay, and enlarged linearly.
// Grid: (nx, ny, frames) of the result, rounded up to whole work-groups.
// Constants: none.
// Shapes: fine (frames, fine_ny, fine_nx), whose first pixel is (top, left) pixels before that of the result, at the first
//   pixel of coarse and halved (frames, coarse_ny, coarse_nx); out (frames, ny, nx). Beyond their ends images go on as they end.

#include "common/pixel_item.h"

__kernel void join_scales(__global const float *fine, int fine_ny, int fine_nx, __global const float *coarse,
                          __global const float *halved, int coarse_ny, int coarse_nx, int top, int left, int ny, int nx,
                          __global float *out)
{
    PIXEL_OF_ITEM(nx, ny)
    const int fine_y = y + top, fine_x = x + left;
    // A pixel lies a quarter of a coarse one before the centre of that if it is even, else after it. From the coarse pixel
    // on the other side on:
    const float weights[4] = {0.1875f, 0.4375f, 0.3125f, 0.0625f};
    const int along_y = fine_y % 2 ? 1 : -1, along_x = fine_x % 2 ? 1 : -1;
    float change = 0.0f;
    for (int j = 0; j < 4; ++j) {
        const int row = clamp(fine_y / 2 + (j - 1) * along_y, 0, coarse_ny - 1);
        const size_t at = (image * coarse_ny + row) * coarse_nx;
        float sum = 0.0f;
        for (int i = 0; i < 4; ++i) {
            const int column = clamp(fine_x / 2 + (i - 1) * along_x, 0, coarse_nx - 1);
            sum = fma(weights[i], coarse[at + column] - halved[at + column], sum);
        }
        change = fma(weights[j], sum, change);
    }
    out[(image * ny + y) * nx + x] = fine[(image * fine_ny + fine_y) * fine_nx + fine_x] + change;
}
