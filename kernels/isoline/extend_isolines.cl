// Extends isolines segment by segment in both directions, along directions found before, and averages the ends of the segments.
// The weight of an end falls with its difference in grey level.
//
// Reference: Perrot et al. 2014, section 4.2, with weights instead of the test.
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: LENGTH; STEPS, segments in each direction; those of isoline/noise.h.
// Shapes: smooth (images, pny, pitch); found (images, pny / 2, pitch / 2), directions modulo 16; image i uses number i % guides;
//   out (images, ny, nx).

#include "common/pixel_item.h"
#include "isoline/segments.h"
#include "isoline/candidates.h"
#include "isoline/noise.h"
#include "isoline/weights.h"

// Standard deviation of the Gaussian weight of a difference, in units of the noise.
#define ALIKE 0.24f

__kernel void extend_isolines(__global const float *smooth, __global const uchar *found, int guides, int pny, int pitch,
                              int y0, int x0, int ny, int nx, NOISE_ARGUMENTS, __global float *out)
{
    PIXEL_OF_ITEM(nx, ny)
    __global const float *levels_found = smooth + image * pny * pitch;
    __global const uchar *directions = found + image % guides * (pny / 2) * (pitch / 2);
    const int here_y = y0 + y;
    const int here_x = x0 + x;
    const size_t inside = (size_t)here_y * pitch + here_x;
    const float level = levels_found[inside];
    const float unit = over_noise(GAUSSIAN(ALIKE) * noise_of(NOISE, image, inside, level));
    const int first = directions[(here_y / 2) * (pitch / 2) + here_x / 2] % AXES;
    float sum = 0.0f;
    float weights = 1.0f;
    #pragma unroll
    for (int side = 0; side < 2; ++side) {
        int direction = first + side * AXES;
        int2 at = (int2)(here_x, here_y);
        float weight = 1.0f;
        #pragma unroll
        for (int k = 0; k < STEPS; ++k) {
            if (k > 0) {
                // A line has two directions: take the one that does not turn back.
                const int next = directions[(at.y / 2) * (pitch / 2) + at.x / 2] % AXES;
                const int turn = turned(next, -direction);
                direction = turn > 8 && turn < 24 ? next + AXES : next;
            }
            at += segment_pixel(direction, LENGTH);
            const float apart = levels_found[(size_t)at.y * pitch + at.x] - level;
            weight *= falling(apart * unit * apart * unit);
            sum = fma(weight, apart, sum);
            weights += weight;
        }
    }
    out[(image * ny + y) * nx + x] = level + sum / weights;
}
