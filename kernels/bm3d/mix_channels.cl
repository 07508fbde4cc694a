// Mixes channels pixel by pixel: to opponent colours and back, or to the one image in which patches of all channels are matched.
//
// Reference: methods page, "colour".
// Grid: (pixels of a frame, frames, channels made).
// Constants: none.
// Shapes: given (channels, frames, pixels); matrix (made, channels); levels (channels, frames), the sigma of each channel; made
//   (made, frames, pixels). With `weighted`, every channel is first divided by its sigma; channels without noise are left out.

__kernel void mix_channels(__global const float *given, int channels, int pixels, __global const float *matrix,
                           __global const float *levels, int weighted, __global float *made)
{
    const int at = get_global_id(0);
    const int frame = get_global_id(1);
    const int frames = get_global_size(1);
    const int out = get_global_id(2);
    if (at >= pixels)
        return;
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
