// Follows an isoline in each of 32 initial directions, with a small turn allowed at each end, and averages the most likely of the
// longest ones (PI-LD). Slow: the reference for PI-PD.
//
// Reference: Perrot et al. 2014, section 4.1.
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: those of isoline/segments.h; SEGMENTS of the longest isoline; DEVIATION, the largest turn at an end, in directions;
//   SHOW = 0 yields pixels, 2 directions.
// Shapes: pixels (images, pny, pitch); padded (guides, pny, pitch): image i uses number i % guides; out (images, out_ny,
//   out_pitch), where the first pixel goes to (out_y0, out_x0).
// Cost of a pixel: 32 * (1 + (SEGMENTS - 1) * (2 * DEVIATION + 1)) segments.

#include "common/pixel_item.h"
#include "isoline/segments.h"

__kernel void search_isolines(__global const float *padded, __global const float *pixels, int guides, int pny, int pitch,
                              int y0, int x0, int ny, int nx, float looks, float t_max,
                              __global float *out, int out_ny, int out_pitch, int out_y0, int out_x0)
{
    PIXEL_OF_ITEM(nx, ny)
    const size_t guide = (image % guides) * pny * pitch;
    const size_t here = guide + (size_t)(y0 + y) * pitch + x0 + x;
    pixels += image * pny * pitch - guide;
    const float level = padded[here];
    const float own = pixels[here];
    Sample best = {0.0f, 0.0f, INFINITY};
    float best_sum = 0.0f;
    int best_direction = 0;
    for (int first = 0; first < DIRECTIONS; ++first) {
        int direction = first;
        long at = here;
        Sample line = segment(padded + at, pitch, direction, level);
        float sum = LENGTH * segment(pixels + at, pitch, direction, own).mean;
        for (int k = 1; k < SEGMENTS; ++k) {
            const int2 end = segment_pixel(direction, LENGTH);
            at += (long)end.y * pitch + end.x;
            Sample chosen = {0.0f, 0.0f, INFINITY};
            int next = -1;
            for (int turn = -DEVIATION; turn <= DEVIATION; ++turn) {
                const Sample more = segment(padded + at, pitch, turned(direction, turn), level);
                const Sample longer = joined(line, more, level);
                if (log_ratio(line, more, longer.spread, level, looks) < t_max && longer.spread < chosen.spread) {
                    chosen = longer;
                    next = turned(direction, turn);
                }
            }
            if (next < 0)
                break;
            direction = next;
            line = chosen;
            sum += LENGTH * segment(pixels + at, pitch, direction, own).mean;
        }
        if (line.number > best.number || (line.number == best.number && line.spread < best.spread)) {
            best = line;
            best_sum = sum;
            best_direction = first;
        }
    }
#if SHOW == 2
    out[(image * out_ny + out_y0 + y) * out_pitch + out_x0 + x] = best_direction;
#else
    out[(image * out_ny + out_y0 + y) * out_pitch + out_x0 + x] = own + best_sum / (best.number + 1);
#endif
}
