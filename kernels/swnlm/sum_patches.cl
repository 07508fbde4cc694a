// Sums every patch of an image, relative to its central pixel: so the mean of the differences of two patches takes a few
// instructions, and a high grey level costs no precision.
//
// Reference: van der Vuurst 2023, algorithm 3.
// Grid: (pitch, pny, frames), rounded up to whole groups.
// Constants: PATCH.
// Shapes: padded (frames, pny, pitch); sums (frames, pny, pitch), (y, x) for the patch whose first pixel is (y, x). Patches that
//   reach beyond the image end with its last row and column.

#include "common/pixel_item.h"

__kernel void sum_patches(__global const float *padded, int pny, int pitch, __global float *sums)
{
    PIXEL_OF_ITEM(pitch, pny)
    const size_t frame = image * pny * pitch;
    const float centre = padded[frame + (size_t)min(y + PATCH / 2, pny - 1) * pitch + min(x + PATCH / 2, pitch - 1)];
    float sum = 0.0f;
    for (int j = 0; j < PATCH; ++j) {
        const size_t row = frame + (size_t)min(y + j, pny - 1) * pitch;
        for (int i = 0; i < PATCH; ++i)
            sum += padded[row + min(x + i, pitch - 1)] - centre;
    }
    sums[frame + (size_t)y * pitch + x] = sum;
}
