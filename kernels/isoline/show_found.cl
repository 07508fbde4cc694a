// Yields the class of each pixel, or the direction of its isoline, as a map for the user.
//
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: SHOW = 1 yields classes, 2 directions.
// Shapes: found (guides, pny / 2, pitch / 2): image i uses number i % guides; out (images, ny, nx).

#include "common/pixel_item.h"

#define AXES 16

__kernel void show_found(__global const uchar *found, int guides, int pny, int pitch, int y0, int x0, int ny, int nx,
                         __global float *out)
{
    PIXEL_OF_ITEM(nx, ny)
    const int code = found[(image % guides * (pny / 2) + (y0 + y) / 2) * (pitch / 2) + (x0 + x) / 2];
    out[(image * ny + y) * nx + x] = SHOW == 1 ? code / AXES : code % AXES;
}
