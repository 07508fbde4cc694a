// Measures how badly each candidate predicts a pixel from the others: mean square over blocks of 2 x 2 pixels, in units of the
// noise.
//
// Reference: methods page, "directions".
// Grid: (nx, ny, images) blocks, the first one being (y0, x0) of the padded ones.
// Constants: LENGTH; CANDIDATES: 16 lines, or 17 with the window; those of isoline/noise.h.
// Shapes: padded, along_x, along_y (images, 2 * block_ny, 2 * block_pitch), see mirror_tile; residuals (images, CANDIDATES,
//   block_ny, block_pitch); levels (images). `middle` is the weight of a pixel in the line through it.
// Cost of a pixel: 340 reads.

#include "common/pixel_item.h"
#include "isoline/segments.h"
#include "isoline/candidates.h"
#include "isoline/noise.h"

__kernel void line_residuals(__global const float *padded, __global const float *along_x, __global const float *along_y,
                             int block_ny, int block_pitch, int y0, int x0, int ny, int nx, float middle,
                             NOISE_ARGUMENTS, __global float *residuals)
{
    PIXEL_OF_ITEM(nx, ny)
    const int pitch = 2 * block_pitch;
    const size_t plane = (size_t)block_ny * block_pitch;
    const size_t block = (size_t)(y0 + y) * block_pitch + x0 + x;
    float found[CANDIDATES];
    #pragma unroll
    for (int d = 0; d < CANDIDATES; ++d)
        found[d] = 0.0f;
    for (int j = 0; j < 2; ++j)
        for (int i = 0; i < 2; ++i) {
            const size_t inside = (size_t)(2 * (y0 + y) + j) * pitch + 2 * (x0 + x) + i;
            const size_t here = 4 * plane * image + inside;
            const float level = padded[here];
            const float around = window_mean(padded + here, pitch);
            const float unit = over_noise(noise_of(NOISE, image, inside, level + around));
            const float by_line = unit / (1.0f - middle);
            #pragma unroll
            for (int d = 0; d < AXES; ++d) {
                __global const float *thick = (along_x_axis(d) ? along_x : along_y) + here;
                const float apart = (thick[0] - level + line_mean(thick, pitch, d)) * by_line;
                found[d] += fmin(apart * apart, 1e30f);
            }
#if CANDIDATES > WINDOW_MEAN
            const float apart = around * unit / (1.0f - WINDOW_MIDDLE);
            found[WINDOW_MEAN] += fmin(apart * apart, 1e30f);
#endif
        }
    #pragma unroll
    for (int d = 0; d < CANDIDATES; ++d)
        residuals[(image * CANDIDATES + d) * plane + block] = 0.25f * found[d];
}
