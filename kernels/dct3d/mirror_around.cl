// Copies a region of a tile and as much around it as cubes need; outside the volume there is its mirror image. Rows have room
// for vectors at their end.
//
// Grid: (pitch, pny, nt * pnz), one work-item a voxel of the copy.
// Constants: CUBE_Z, CUBE_Y, CUBE_X.
// Shapes: tile (nt, tile_nz, tile_ny, tile_nx), which lies at (tile_z, tile_y, tile_x) of a volume (length_z, length_y, length_x);
//   copy (nt, pnz, pny, pitch), at (z - CUBE_Z + 1, y - CUBE_Y + 1, x - CUBE_X + 1) of the volume.

#include "common/mirror.h"

__kernel void mirror_around(__global const float *tile, int tile_nz, int tile_ny, int tile_nx,
                            int tile_z, int tile_y, int tile_x, int length_z, int length_y, int length_x,
                            int z, int y, int x, __global float *copy, int pnz, int pny, int pitch)
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int frame = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    // Beyond what cubes need there may be nothing: rows go on with the last voxel.
    const int from_x = min(mirror_place(x - CUBE_X + 1 + px, length_x) - tile_x, tile_nx - 1);
    const int from_y = mirror_place(y - CUBE_Y + 1 + py, length_y) - tile_y;
    const int from_z = mirror_place(z - CUBE_Z + 1 + frame % pnz, length_z) - tile_z;
    const size_t from = (((size_t)(frame / pnz) * tile_nz + from_z) * tile_ny + from_y) * tile_nx + max(from_x, 0);
    copy[((size_t)frame * pny + py) * pitch + px] = tile[from];
}
