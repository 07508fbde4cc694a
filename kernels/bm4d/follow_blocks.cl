// Finds where blocks of a volume are at another time: the displacement with the smallest mean squared difference in a window.
//
// Reference: as VBM3D follows the motion of blocks. What is compared is larger than a cube, since noise would lead single cubes
//   astray: a block of two cubes along each axis, and one cube around it; every second voxel along each axis.
// Grid: (TEAM, blocks along x, blocks along y and z); a work-group of TEAM items serves one block.
// Constants: those of cubes.h, WINDOW_* of this search; TEAM.
// Shapes: padded (volumes, pnz, pny, pitch), its voxel (v0, z0, y0, x0) the origin of a tile of (nz, ny, nx) voxels in the volume
//   that is followed; `other` is the distance in volumes to that of the other time; motion (volumes, blocks along z, y, x) as
//   (differs, dz, dy, dx): the window is centred on that of the volume `nearer` places away, or on no displacement where that is 0.
//   The first block begins at (-shift_z, -shift_y, -shift_x): blocks of all tiles lie alike. `still` is subtracted from the
//   difference at the centre of the window. A block differs if the difference found is above `limit` times the variance of the noise,
//   the mean over its slices and both volumes; levels (volumes, slices) as in shrink_cubes.
// Cost of a block: 1024 operations a displacement.

#include "bm4d/cubes.h"
#include "bm4d/motion.h"
#include "common/far.h"

#define WINDOW (WINDOW_Z * WINDOW_Y * WINDOW_X)
#define SUPPORT_Z (2 * CZ)
#define SUPPORT_Y (2 * CY)
#define SUPPORT_X (2 * CX)

__kernel __attribute__((reqd_work_group_size(TEAM, 1, 1)))
void follow_blocks(__global const float *padded, int pnz, int pny, int pitch, int v0, int z0, int y0, int x0, int nz, int ny, int nx,
                   MOTION_ARGUMENTS,
                   int other, int nearer, float still, __global const float *levels, int slices, int first_slice, float limit,
                   __global int4 *motion)
{
    __local float least[TEAM];
    __local int where[TEAM];
    __local float found[TEAM];

    const int item = get_local_id(0);
    const int bx = get_global_id(1), by = get_global_id(2) % blocks_y, bz = get_global_id(2) / blocks_y;
    const int block = (bz * blocks_y + by) * blocks_x + bx;
    const int blocks = blocks_z * blocks_y * blocks_x;
    const size_t plane = (size_t)pny * pitch;
    __global const float *here = padded + ((size_t)v0 * pnz + z0) * plane + (size_t)y0 * pitch + x0;
    __global const float *there = here + (long)other * pnz * (long)plane;
    const int4 centre = nearer != 0 ? motion[(v0 + nearer) * blocks + block] : (int4)(0);
    const int z = bz * 2 * CZ - shift_z - CZ, y = by * 2 * CY - shift_y - CY, x = bx * 2 * CX - shift_x - CX;

    // Only what is nearer than nothing at all replaces the centre.
    float best = FAR;
    int best_offset = WINDOW / 2;
    float best_d2 = FAR;
    for (int offset = item; offset < WINDOW; offset += TEAM) {
        const int dz = centre.y + offset / (WINDOW_Y * WINDOW_X) - WINDOW_Z / 2;
        const int dy = centre.z + offset / WINDOW_X % WINDOW_Y - WINDOW_Y / 2;
        const int dx = centre.w + offset % WINDOW_X - WINDOW_X / 2;
        // Where both are in the volume.
        const int low_z = max(0, -dz), high_z = min(nz, nz - dz);
        const int low_y = max(0, -dy), high_y = min(ny, ny - dy);
        const int low_x = max(0, -dx), high_x = min(nx, nx - dx);
        float sum = 0.0f;
        int count = 0;
        for (int k = 0; k < SUPPORT_Z; ++k) {
            const int pz = z + 2 * k;
            if (pz < low_z || pz >= high_z)
                continue;
            for (int i = 0; i < SUPPORT_Y; ++i) {
                const int py = y + 2 * i;
                if (py < low_y || py >= high_y)
                    continue;
                __global const float *a = here + pz * plane + (size_t)py * pitch;
                __global const float *b = there + (pz + dz) * plane + (size_t)(py + dy) * pitch + dx;
                for (int j = 0; j < SUPPORT_X; ++j) {
                    const int px = x + 2 * j;
                    if (px >= low_x && px < high_x) {
                        const float e = a[px] - b[px];
                        sum = fma(e, e, sum);
                        ++count;
                    }
                }
            }
        }
        // A displacement that leaves too little to compare is none.
        const float d2 = 4 * count >= SUPPORT_Z * SUPPORT_Y * SUPPORT_X ? sum / count : FAR;
        const float preferred = offset == WINDOW / 2 ? d2 - still : d2;
        if (preferred < best) {
            best = preferred;
            best_d2 = d2;
            best_offset = offset;
        }
    }
    least[item] = best;
    where[item] = best_offset;
    found[item] = best_d2;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
        for (int k = 1; k < TEAM; ++k) {
            if (least[k] < best) {
                best = least[k];
                best_d2 = found[k];
                best_offset = where[k];
            }
        }
        // Of the slices that are compared.
        float variance = 0.0f;
        int count = 0;
        for (int k = 0; k < SUPPORT_Z; ++k) {
            if (z + 2 * k >= 0 && z + 2 * k < nz) {
                const float own = levels[v0 * slices + first_slice + z + 2 * k];
                const float its = levels[(v0 + other) * slices + first_slice + z + 2 * k];
                variance += 0.5f * (own * own + its * its);
                ++count;
            }
        }
        const int differs = !(best_d2 * count <= limit * variance);
        const int4 way = (int4)(differs, best_offset / (WINDOW_Y * WINDOW_X) - WINDOW_Z / 2,
                                  best_offset / WINDOW_X % WINDOW_Y - WINDOW_Y / 2, best_offset % WINDOW_X - WINDOW_X / 2);
        motion[(v0 + other) * blocks + block] = (int4)(0, centre.y, centre.z, centre.w) + way;
    }
}
