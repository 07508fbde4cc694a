// Copies the frames of a tile into arrays with room around them, so that nothing else needs border tests: as far as a patch
// reaches outside the image there is its mirror image, farther out FAR. A patch around a pixel outside the image reaches FAR, and
// its distance is practically infinite.
//
// Grid: (pitch, pny, channels * frames), one work-item a pixel of the arrays.
// Constants: RADIUS of the patch; SPLIT = 1 for the plain layout; SPLIT = 4 stores in each row first all columns with x % 4 = 0,
//   then those with 1, and so on, and SPLIT = 2 likewise; ALIKE = 1 converts the grey levels of every frame to those of another, see common/frame_ring.h;
//   a frame without noise is left out, as if it were outside the image.
// Shapes: tile (channels, ring, nz, ny, nx), its first frame in slot `first`, its first pixel at (tile_y, tile_x) of an image
//   (length_y, length_x); spread (channels, nt * nz, pny, pitch), at (y, x) of the image; alike (channels, nt), links.

#include "common/far.h"
#include "common/frame_ring.h"
#include "common/mirror.h"

__kernel void spread_pixels(__global const float *tile, int first, int ring, int nt, int nz, int ny, int nx,
                            int tile_y, int tile_x, int length_y, int length_x,
                            __global float *spread, int pny, int pitch, int y, int x
#if ALIKE
                            , __global const float *alike
#endif
                            )
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int plane = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    const int channel = plane / (nt * nz);
    const int t = plane / nz % nt;
    const int z = plane % nz;
    const int at_y = y + py, at_x = x + px;
    float value = FAR;
    if (at_y >= -RADIUS && at_y < length_y + RADIUS && at_x >= -RADIUS && at_x < length_x + RADIUS) {
        const int from_y = mirror_place(at_y, length_y) - tile_y;
        const int from_x = mirror_place(at_x, length_x) - tile_x;
        if (from_y >= 0 && from_y < ny && from_x >= 0 && from_x < nx) {
            const size_t frame = ((size_t)channel * ring + ring_slot(first, t, ring)) * nz + z;
            value = tile[(frame * ny + from_y) * nx + from_x];
#if ALIKE
            const Link link = frame_link(alike, channel * nt + t);
            value = link.noise > 0.0f ? fma(value, link.scale, link.shift) : FAR;
#endif
        }
    }
    const int column = px % SPLIT * (pitch / SPLIT) + px / SPLIT;
    spread[((size_t)plane * pny + py) * pitch + column] = value;
}
