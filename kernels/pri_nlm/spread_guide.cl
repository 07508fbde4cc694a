// Puts the guide, its mean over 3 x 3 x 3 voxels and the noisy voxels into arrays with room around them, so that the search needs
// no border tests: the guide is FAR outside the volume.
//
// Reference: Manjon et al. 2012, section 2.3.
// Grid: (pitch, pny, nt * pnz), one work-item a voxel of the arrays.
// Constants: RADIUS_Z, RADIUS, of the window; PACKED, 1 where the three values of a voxel lie together, for GPUs; EVEN, 1 where
//   sigma is that of levels[0] everywhere: the first two values are then in the units of similar.h.
// Shapes: tile (nt, tile_nz, tile_ny, tile_nx), which lies at (tile_z, tile_y, tile_x) of a volume (length_z, length_y, length_x);
//   guide (nt, guide_nz, guide_ny, guide_nx), at (guide_z, guide_y, guide_x); spread (3, nt, pnz, pny, pitch), at
//   (z - RADIUS_Z, y - RADIUS, x - RADIUS): the guide, sqrt(3) times its mean, the voxels; (nt, pnz, pny, pitch, 4) if PACKED.
// The mean is that of the voxels inside the volume.

#include "common/far.h"
#include "pri_nlm/similar.h"

__kernel void spread_guide(__global const float *tile, int tile_nz, int tile_ny, int tile_nx, int tile_z, int tile_y, int tile_x,
                           __global const float *guide, int guide_nz, int guide_ny, int guide_nx,
                           int guide_z, int guide_y, int guide_x, int length_z, int length_y, int length_x,
                           int z, int y, int x, __global const float *levels, float strength,
                           __global float *spread, int volumes, int pnz, int pny, int pitch)
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int frame = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    const int volume = frame / pnz;
    // In the guide, which reaches one voxel further than the window, as far as there is a volume.
    const int gz = z - RADIUS_Z + frame % pnz - guide_z;
    const int gy = y - RADIUS + py - guide_y;
    const int gx = x - RADIUS + px - guide_x;
    float level = FAR, mean = FAR, voxel = 0.0f;
    if (gz >= 0 && gz < guide_nz && gy >= 0 && gy < guide_ny && gx >= 0 && gx < guide_nx) {
        __global const float *mine = guide + (size_t)volume * guide_nz * guide_ny * guide_nx;
        level = mine[((size_t)gz * guide_ny + gy) * guide_nx + gx];
        // Of differences: a high grey level costs no precision.
        float total = 0.0f;
        int count = 0;
        for (int k = max(gz - 1, 0); k <= min(gz + 1, guide_nz - 1); ++k)
            for (int j = max(gy - 1, 0); j <= min(gy + 1, guide_ny - 1); ++j)
                for (int i = max(gx - 1, 0); i <= min(gx + 1, guide_nx - 1); ++i) {
                    total += mine[((size_t)k * guide_ny + j) * guide_nx + i] - level;
                    ++count;
                }
        mean = 1.73205081f * (level + total / count);
        const size_t from = ((size_t)volume * tile_nz + gz + guide_z - tile_z) * tile_ny + gy + guide_y - tile_y;
        voxel = tile[from * tile_nx + gx + guide_x - tile_x];
    }
    const float scale = EVEN ? guide_scale(strength * levels[0]) : 1.0f;
    const size_t size = (size_t)volumes * pnz * pny * pitch;
    const size_t to = ((size_t)frame * pny + py) * pitch + px;
#if PACKED
    vstore4((float4)(level * scale, mean * scale, voxel, 0.0f), to, spread);
#else
    spread[to] = level * scale;
    spread[to + size] = mean * scale;
    spread[to + 2 * size] = voxel;
#endif
}
