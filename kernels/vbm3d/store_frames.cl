// Copies frames into a ring of padded frames whose margin is FAR, so that searches need no border tests.
//
// Grid: (pitch, pny, channels * count), rounded up to whole work-groups.
// Constants: none.
// Shapes: frames (channels, count, ny, nx); images (channels, ring, pny, pitch), the first frame into slot `first`, the origin of
//   a frame at (y0, x0).

#include "common/far.h"
#include "common/frame_ring.h"

__kernel void store_frames(__global const float *frames, int count, int ny, int nx,
                           __global float *images, int ring, int first, int pny, int pitch, int y0, int x0)
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int which = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    const int y = py - y0;
    const int x = px - x0;
    const bool inside = y >= 0 && y < ny && x >= 0 && x < nx;
    const float value = inside ? frames[((size_t)which * ny + y) * nx + x] : FAR;
    const size_t slot = (size_t)(which / count) * ring + ring_slot(first, which % count, ring);
    images[(slot * pny + py) * pitch + px] = value;
}
