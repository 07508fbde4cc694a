// Follows isolines along precomputed directions and averages them (PI-PD); with HYBRID only where there are edges nearby.
//
// Reference: Perrot et al. 2014, sections 4.2 and 5.3, algorithm 3; hybrid: section 4.3, algorithm 4.
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: those of isoline/segments.h; SEGMENTS of the longest isoline; THICKNESS, the number of parallel lines averaged;
//   HYBRID; ASIDE = 1 if isolines are found in another image than the one averaged; SHOW = 0 yields pixels, 1 classes,
//   2 directions.
// Shapes: pixels (images, pny, pitch); padded (guides, pny, pitch): image i uses number i % guides; directions, segments as
//   first_segments writes them; out (images, out_ny, out_pitch), where the first pixel goes to (out_y0, out_x0).

#include "common/pixel_item.h"
#include "isoline/segments.h"
#include "isoline/half_planes.h"

// Sum of the pixels of one segment and of its parallel lines, relative to `level`.
static inline float levels_along(__global const float *pixels, int pitch, int direction, float level)
{
    float sum = 0.0f;
    const int2 left = segment_pixel(turned(direction, 8), 1);
    for (int k = 1; k <= LENGTH; ++k) {
        const int2 at = segment_pixel(direction, k);
        sum += pixels[at.y * pitch + at.x] - level;
        if (THICKNESS > 1)
            sum += pixels[(at.y + left.y) * pitch + at.x + left.x] - level;
        if (THICKNESS > 2)
            sum += pixels[(at.y - left.y) * pitch + at.x - left.x] - level;
    }
    return sum;
}

// Mean along the isoline of the pixel `here`, itself included, relative to `own`, its value in `pixels`.
static inline float isoline_mean(__global const float *padded, __global const float *pixels, int pitch, size_t here,
                                 __global const uchar *directions, __global const float2 *segments,
                                 float looks, float most, float own)
{
    const float level = padded[here];
    int direction = directions[here];
    const float2 first = segments[here];
    Sample line = {LENGTH, first.x, first.y};
    const bool summed = ASIDE + THICKNESS > 1;
    float sum = summed ? levels_along(pixels + here, pitch, direction, own) : 0.0f;
    for (int k = 1; k < SEGMENTS; ++k) {
        const int2 end = segment_pixel(direction, LENGTH);
        here += (long)end.y * pitch + end.x;
        direction = directions[here];
        const float2 next = segments[here];
        const Sample more = {LENGTH, padded[here] - level + next.x, next.y};
        const Sample longer = joined(line, more, level);
        if (!(log_ratio(line, more, longer.spread, level, looks) < most))
            break;
        line = longer;
        if (summed)
            sum += levels_along(pixels + here, pitch, direction, own);
    }
    return summed ? sum / (line.number * THICKNESS + 1) : line.mean * line.number / (line.number + 1);
}

__kernel void follow_isolines(__global const float *padded, __global const float *pixels, int guides, int pny, int pitch,
                              int y0, int x0, int ny, int nx,
                              __global const uchar *directions, __global const float2 *segments,
                              float looks, float t_max, float t2_max,
                              __global float *out, int out_ny, int out_pitch, int out_y0, int out_x0)
{
    PIXEL_OF_ITEM(nx, ny)
    const size_t inside = (size_t)(y0 + y) * pitch + x0 + x;
    const size_t guide = (image % guides) * pny * pitch;
    const size_t here = guide + inside;
    pixels += image * pny * pitch - guide;
    const float own = pixels[here];
    // Without HYBRID all isolines are followed.
    Edges edges = {ISOLINE, 0, 0.0f, 0.0f};
#if HYBRID && SHOW != 2
    edges = edges_around(padded + here, pitch, padded[here], looks, t2_max);
#endif
    float value;
    if (SHOW == 2)
        value = directions[here];
    else if (SHOW == 1)
        value = min(edges.edges, ISOLINE);
    else if (edges.edges > 1)
        value = own + isoline_mean(padded, pixels, pitch, here, directions, segments, looks, t_max, own);
    else if (!ASIDE)
        value = own + (edges.edges ? edges.beside : edges.star);
    else if (edges.edges)
        value = own + rays_mean(pixels + here, pitch, edges.line, 5, own);
    else
        value = own + rays_mean(pixels + here, pitch, 0, 8, own);
    out[(image * out_ny + out_y0 + y) * out_pitch + out_x0 + x] = value;
}
