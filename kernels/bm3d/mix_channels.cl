// Mixes channels pixel by pixel: to opponent colours and back, or to the one image in which patches of all channels are matched.
//
// Reference: methods page, "colour".
// Grid: (nx, ny, made * frames), rounded up to whole work-groups.
// Constants: none.
// Shapes: given (channels, frames, ny, nx); matrix (made, channels); levels (channels, frames), the sigma of each channel; made
//   (made, frames, ny, nx). With `weighted`, every channel is first divided by its sigma; channels without noise are left out.

#include "common/pixel_item.h"

__kernel void mix_channels(__global const float *given, int channels, int frames, int ny, int nx,
                           __global const float *matrix,
                           __global const float *levels, int weighted, __global float *made)
{
    PIXEL_OF_ITEM(nx, ny)
    const int out = image / frames, frame = image % frames;
    const size_t pixels = (size_t)ny * nx;
    const size_t at = (size_t)y * nx + x;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float level = levels[c * frames + frame];
        const float value = given[((size_t)c * frames + frame) * pixels + at];
        const float share = matrix[out * channels + c];
        if (!weighted)
            sum = fma(share, value, sum);
        else if (level > 0.0f)
            sum = fma(share, value / level, sum);
    }
    made[((size_t)out * frames + frame) * pixels + at] = sum;
}
