// Computes the pilot image, a mean of the candidates weighted by how well they predict the pixels around, and finds the
// direction of the best line and the class of each block.
//
// Reference: methods page, "directions".
// Grid: (nx, ny, images) blocks of 2 x 2 pixels, the first one being (y0, x0) of the padded ones.
// Constants: LENGTH; CANDIDATES: 16 lines, or 17 with the window.
// Shapes: pixels, along_x, along_y, pilot (images, 2 * block_ny, 2 * block_pitch); residuals (guides, CANDIDATES, block_ny,
//   block_pitch), in units of the noise: image i uses number i % guides; found (images, block_ny, block_pitch): direction
//   and class.
// Cost of a pixel: 450 reads.

#include "common/pixel_item.h"
#include "isoline/segments.h"
#include "isoline/half_planes.h"
#include "isoline/candidates.h"

// Residual of the mean above which the noisy pixel is closer to the truth: part of what the mean removes is then restored.
#define FITTING 2.0f
// Residual of the window above which there is an edge; and the excess over the best line below which the slope is low: in pure
// noise the best of 16 lines fits better by chance.
#define BROKEN 2.0f
#define CHANCE 0.25f

// Mean over 5 x 5 blocks with triangular weights: the best direction of a single block would follow the noise.
static inline float smoothed(__global const float *residuals, int pitch)
{
    float sum = 0.0f;
    #pragma unroll
    for (int j = -2; j <= 2; ++j) {
        __global const float *row = residuals + (long)j * pitch;
        const float of_row = (row[-2] + row[2]) + 2.0f * (row[-1] + row[1]) + 3.0f * row[0];
        sum = fma((float)(3 - abs(j)), of_row, sum);
    }
    return sum / 81.0f;
}

__kernel void mix_candidates(__global const float *pixels, __global const float *along_x, __global const float *along_y,
                             int block_ny, int block_pitch, int y0, int x0, int ny, int nx,
                             __global const float *residuals, int guides, float softness,
                             __global float *pilot, __global uchar *found)
{
    PIXEL_OF_ITEM(nx, ny)
    const int pitch = 2 * block_pitch;
    const size_t plane = (size_t)block_ny * block_pitch;
    const size_t block = (size_t)(y0 + y) * block_pitch + x0 + x;

    float weights[CANDIDATES];
    int best = 0;
    #pragma unroll
    for (int d = 0; d < CANDIDATES; ++d)
        weights[d] = smoothed(residuals + ((image % guides) * CANDIDATES + d) * plane + block, block_pitch);
    float least = weights[0];
    #pragma unroll
    for (int d = 1; d < AXES; ++d)
        if (weights[d] < least) {
            least = weights[d];
            best = d;
        }
    int class = ISOLINE;
#if CANDIDATES > WINDOW_MEAN
    class = weights[WINDOW_MEAN] <= least + CHANCE ? LOW_SLOPE : weights[WINDOW_MEAN] > BROKEN ? EDGE : ISOLINE;
    least = fmin(least, weights[WINDOW_MEAN]);
#endif
    float total = 0.0f;
    float left = 0.0f;
    #pragma unroll
    for (int d = 0; d < CANDIDATES; ++d) {
        const float residual = weights[d];
        weights[d] = exp((least - residual) / softness);
        total += weights[d];
        left = fma(weights[d], residual, left);
    }
    #pragma unroll
    for (int d = 0; d < CANDIDATES; ++d)
        weights[d] /= total;
    const float unexplained = fmax(left / total - FITTING, 0.0f);
    const float kept = 1.0f / (unexplained + 1.0f);

    for (int j = 0; j < 2; ++j)
        for (int i = 0; i < 2; ++i) {
            const size_t here = 4 * plane * image + (size_t)(2 * (y0 + y) + j) * pitch + 2 * (x0 + x) + i;
            const float level = pixels[here];
            float mean = 0.0f;
            #pragma unroll
            for (int d = 0; d < AXES; ++d) {
                __global const float *thick = (along_x_axis(d) ? along_x : along_y) + here;
                mean = fma(weights[d], thick[0] - level + line_mean(thick, pitch, d), mean);
            }
#if CANDIDATES > WINDOW_MEAN
            mean = fma(weights[WINDOW_MEAN], window_mean(pixels + here, pitch), mean);
#endif
            pilot[here] = fma(mean, kept, level);
        }
    found[image * plane + block] = best + AXES * class;
}
