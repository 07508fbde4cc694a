// Finds, for each pixel, the segment of least variance among the 32 that leave it: the reference matrices of PI-PD.
//
// Reference: Perrot et al. 2014, section 5.2, algorithm 2. The lowest direction wins a tie.
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: those of isoline/segments.h.
// Shapes: padded (images, pny, pitch); directions, segments the same, with a margin that is not written. A segment is its mean,
//   relative to the pixel that it leaves, and its sum of squared differences from that mean.
// Cost of a pixel: 32 * LENGTH reads.

#include "common/pixel_item.h"
#include "isoline/segments.h"

__kernel void first_segments(__global const float *padded, int pny, int pitch, int y0, int x0, int ny, int nx,
                             __global uchar *directions, __global float2 *segments)
{
    PIXEL_OF_ITEM(nx, ny)
    const size_t here = (image * pny + y0 + y) * pitch + x0 + x;
    const float level = padded[here];
    int best = 0;
    float mean = 0.0f;
    float least = INFINITY;
    #pragma unroll
    for (int d = 0; d < DIRECTIONS; ++d) {
        const Sample found = segment(padded + here, pitch, d, level);
        if (found.spread < least) {
            best = d;
            mean = found.mean;
            least = found.spread;
        }
    }
    directions[here] = best;
    segments[here] = (float2)(mean, least);
}
