// Copies a tile into the middle of a larger one whose margin is FAR, so that searches need no border tests.
//
// Grid: (pitch, pny, pnt * pnz), one work-item a padded pixel.
// Constants: SPLIT = 1 for the plain layout; SPLIT = STEP stores in each row first all columns with x % SPLIT = 0, then those
//   with 1, and so on: reference patches STEP apart are then neighbours in memory and can be loaded as vectors.
//   ALIKE = 1 converts the grey levels of every frame to those of another; a frame without noise is left out, as if it were
//   outside the image.
// Shapes: tile (ring, nz, ny, nx), its first frame in slot `first`, see common/frame_ring.h; padded (pnt, pnz, pny, pitch), the
//   origin of the tile at (t0, z0, y0, x0); alike (nt), links, see common/frame_ring.h.

#include "common/far.h"
#include "common/frame_ring.h"

__kernel void pad_far(__global const float *tile, int first, int ring, int nt, int nz, int ny, int nx,
                      __global float *padded, int pnz, int pny, int pitch,
                      int t0, int z0, int y0, int x0
#if ALIKE
                      , __global const float *alike
#endif
                      )
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int frame = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    const int t = frame / pnz - t0;
    const int z = frame % pnz - z0;
    const int y = py - y0;
    const int x = px - x0;
    const bool inside = t >= 0 && t < nt && z >= 0 && z < nz && y >= 0 && y < ny && x >= 0 && x < nx;
    float value = FAR;
    if (inside) {
        value = tile[((size_t)(ring_slot(first, t, ring) * nz + z) * ny + y) * nx + x];
#if ALIKE
        const Link link = frame_link(alike, t);
        value = link.noise > 0.0f ? fma(value, link.scale, link.shift) : FAR;
#endif
    }
    const int column = (px % SPLIT) * (pitch / SPLIT) + px / SPLIT;
    padded[((size_t)frame * pny + py) * pitch + column] = value;
}
