// Copies a tile into the middle of a larger one whose margin is FAR, so that searches need no border tests.
//
// Grid: (pitch, pny, channels * pnt * pnz), one work-item a padded pixel.
// Constants: SPLIT = 1 for the plain layout; SPLIT = STEP stores in each row first all columns with x % SPLIT = 0, then those
//   with 1, and so on: reference patches STEP apart are then neighbours in memory and can be loaded as vectors.
//   ALIKE = 1 converts the grey levels of every frame to those of another; a frame without noise is left out, as if it were
//   outside the image.
//   RADIUS, if any, mirrors the image, (length_y, length_x), whose pixel (tile_y, tile_x) is the first one of the tile, as far outside as a
//   patch reaches. A patch around a pixel outside the image reaches FAR, and its distance is practically infinite.
//   RINGS = 1 writes into rings of `slots` frames, the first one into slot `into`.
// Shapes: tile (channels, ring, nz, ny, nx), its first frame in slot `first`, see common/frame_ring.h; padded (channels, pnt, pnz, pny,
//   pitch), the origin of the tile at (t0, z0, y0, x0); alike (channels, nt), links, see common/frame_ring.h.

#include "common/far.h"
#include "common/frame_ring.h"
#include "common/mirror.h"

__kernel void pad_far(__global const float *tile, int first, int ring, int nt, int nz, int ny, int nx,
                      __global float *padded, int pnt, int pnz, int pny, int pitch,
                      int t0, int z0, int y0, int x0
#ifdef RADIUS
                      , int tile_y, int tile_x, int length_y, int length_x
#endif
#if RINGS
                      , int slots, int into
#endif
#if ALIKE
                      , __global const float *alike
#endif
                      )
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int plane = get_global_id(2);
    // Before some items end: divisions that all do are taken out of the loop over those of a CPU.
    const int channel = plane / (pnt * pnz);
    const int t = plane / pnz % pnt - t0;
    const int z = plane % pnz - z0;
    if (px >= pitch || py >= pny)
        return;
    int y = py - y0;
    int x = px - x0;
#ifdef RADIUS
    if (y + tile_y >= -RADIUS && y + tile_y < length_y + RADIUS && x + tile_x >= -RADIUS && x + tile_x < length_x + RADIUS) {
        y = mirror_place(y + tile_y, length_y) - tile_y;
        x = mirror_place(x + tile_x, length_x) - tile_x;
    }
#endif
    const bool inside = t >= 0 && t < nt && z >= 0 && z < nz && y >= 0 && y < ny && x >= 0 && x < nx;
    float value = FAR;
    if (inside) {
        const size_t frame = ((size_t)channel * ring + ring_slot(first, t, ring)) * nz + z;
        value = tile[(frame * ny + y) * nx + x];
#if ALIKE
        const Link link = frame_link(alike, channel * nt + t);
        value = link.noise > 0.0f ? fma(value, link.scale, link.shift) : FAR;
#endif
    }
    const int column = (px % SPLIT) * (pitch / SPLIT) + px / SPLIT;
#if RINGS
    const size_t place = (size_t)channel * slots + ring_slot(into, t, slots);
#else
    const size_t place = plane;
#endif
    padded[(place * pny + py) * pitch + column] = value;
}
