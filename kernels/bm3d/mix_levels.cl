// Computes the standard deviation of the noise in the channels that mix_channels makes.
//
// Reference: variances of independent noise add up.
// Grid: (frames, channels made).
// Constants: none.
// Shapes: as in mix_channels; made_levels (made, frames).

__kernel void mix_levels(__global const float *levels, int channels, __global const float *matrix, int weighted,
                         __global float *made_levels)
{
    const int frame = get_global_id(0);
    const int frames = get_global_size(0);
    const int out = get_global_id(1);
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float level = levels[c * frames + frame];
        const float sigma = matrix[out * channels + c] * (weighted ? (level > 0.0f ? 1.0f : 0.0f) : level);
        sum = fma(sigma, sigma, sum);
    }
    made_levels[out * frames + frame] = sqrt(sum);
}
