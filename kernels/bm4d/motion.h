// Cubes of other times: where they are, and how they are combined with those of the volume that is filtered.
//
// The displacement of a reference is that of its block, and that of all cubes of its group. Of each cube A is the mean over time,
// weighted by 1 / sigma^2, and E the difference of the cube itself to that: their noise is independent, and A + E is the cube. Both
// are filtered as a stack of their own. Of what a time holds nothing is used for a reference whose block or cube differs there too
// much.
// Needs: cubes.h, cube_groups.h, bm3d/shrinkage.h. Constants: BEFORE, AFTER (times around the one that is filtered).
// Shapes: motion as follow_blocks writes it; volumes from `earliest` to `latest`, relative to the one that is filtered, are there.

#define MOTION_ARGUMENTS int blocks_z, int blocks_y, int blocks_x, int shift_z, int shift_y, int shift_x

// Number of the block of voxel (z, y, x) of a tile.
#define BLOCK_OF(z, y, x) ((((z) + shift_z) / (2 * CZ) * blocks_y + ((y) + shift_y) / (2 * CY)) * blocks_x \
                           + ((x) + shift_x) / (2 * CX))

#if BEFORE + AFTER
// Of noise with a standard deviation.
#define PRECISION(sigma) (1.0f / max((sigma) * (sigma), SMALLEST_SIGMA * SMALLEST_SIGMA))
#define TIMES (BEFORE + 1 + AFTER)
#define TIME_ARGUMENTS __global const int4 *motion, int nz, int ny, int nx, MOTION_ARGUMENTS, int earliest, int latest, \
                       float similar_next,
// First voxel of a cube that is displaced by `moved`, inside the volume, seen from (z, y, x).
#define MOVED(offset, moved) (int4)(0, clamp(z + (offset).y + (moved).y, 0, nz - CZ) - z, \
                                    clamp(y + (offset).z + (moved).z, 0, ny - CY) - y, \
                                    clamp(x + (offset).w + (moved).w, 0, nx - CX) - x)
#else
#define TIMES 1
#define TIME_ARGUMENTS
#endif
