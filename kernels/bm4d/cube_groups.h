// The cubes of a group: which they are, the noise in them, and the noise that they share.
//
// Needs: REAL. Constants: SIGMA_MAP, SPECTRUM; SHARE_Z, SHARE_Y, SHARE_X:
//   displacements at which cubes share noise, 0 included: the sides of a cube, and of correlated noise how far it reaches.
// Shapes: offsets (displacements) as (0, dz, dy, dx), the first one zero; correlation (spectra, APART + 1, CUBE): covariance of the
//   noise, in sigma squared, in each coefficient of two cubes, by displacement, (|dz| SHARE_Y + |dy|) SHARE_X + |dx|; the last row,
//   for cubes that share no noise, is zero, the first one that of a single cube: 1 if the noise is white, where there is one
//   spectrum.

#include "bm4d/cubes.h"
#include "common/match_key.h"
#include "bm4d/line_transform.h"
#include "bm3d/stack_transform.h"
#include "bm3d/shrinkage.h"
#include "bm3d/stack_variances.h"
#include "bm4d/motion.h"

// Code of two cubes that share no noise.
#define APART (SHARE_Z * SHARE_Y * SHARE_X)

static inline int shared_noise(int4 one, int4 other)
{
    const int dz = abs(one.y - other.y), dy = abs(one.z - other.z), dx = abs(one.w - other.w);
    return dz < SHARE_Z && dy < SHARE_Y && dx < SHARE_X ? (dz * SHARE_Y + dy) * SHARE_X + dx : APART;
}

// The volumes that have one spectrum of correlated noise: those of a channel, or all.
#if SPECTRUM
typedef ushort CODE;
#define SPECTRUM_ARGUMENT int spectrum_volumes,
#define SPECTRUM_OF(correlation, volume) ((correlation) + (volume) / spectrum_volumes * ((APART + 1) * CUBE))
#else
typedef uchar CODE;
#define SPECTRUM_ARGUMENT
#define SPECTRUM_OF(correlation, volume) (correlation)
#endif

// Pairs of a stack are kept as codes where they are few. In blocks with a stride of COUNTED_STRIDE or more, that is of 16 pairs or
// more, it is counted how often each code occurs: there are only 64. Of correlated noise there are more than pairs.
#define COUNTED_STRIDE (SPECTRUM ? NEIGHBOURS : 4)
#define COUNTED_BLOCKS (NEIGHBOURS >= 2 * COUNTED_STRIDE ? NEIGHBOURS / COUNTED_STRIDE - 1 : 1)

// Which of these blocks holds the pairs with one cube in either half of the block that begins at k.
static inline int counted_block(int stride, int k)
{
    return NEIGHBOURS / COUNTED_STRIDE - NEIGHBOURS / stride + k / (2 * stride);
}

// Displacement of the match with a key; zero where it is none, since such a key may point beyond the table.
static inline int4 match_offset(__global const int4 *offsets, uint key)
{
    return offsets[key < FAR_KEY ? key & INDEX_MASK : 0u];
}

// Sigma in the middle of the cube whose first voxel is (z, y, x) of the tile: that of the slice, times a map if there is one;
// `levels` are those of the slices of its volume.
#if SIGMA_MAP
#define MAP_ARGUMENTS __global const float *variation, int map_pitch, int map_y, int map_x,
#define MAP_PARAMETERS , __global const float *variation, int map_pitch, int map_y, int map_x
#define MAP_NAMES , variation, map_pitch, map_y, map_x
#define CUBE_SIGMA(levels, z, y, x) ((levels)[(z) + CZ / 2] \
                             * variation[((y) + map_y + CY / 2) * map_pitch + (x) + map_x + CX / 2])
#else
#define MAP_ARGUMENTS
#define MAP_PARAMETERS
#define MAP_NAMES
#define CUBE_SIGMA(levels, z, y, x) (levels)[(z) + CZ / 2]
#endif

// What these know of a reference: where its cube is, in the sums and in the volumes, its keys, and how similar another must be.
#define REFERENCE_CUBE \
    const int z = ALONG_Z(layer), y = ALONG_Y(row), x = ALONG_X(column); \
    const size_t corner = ((size_t)volume * pnz + z0 + z) * plane + (size_t)(y0 + y) * pitch + x0 + x; \
    const size_t deep = pnz * plane, corner_there = corner + v0 * deep; \
    const size_t first_key = (((size_t)volume * layers + layer) * rows + row) * NEIGHBOURS * columns + column; \
    __global const float *slice_sigma = levels + (volume + v0) * slices + first_slice; \
    const float own_sigma = CUBE_SIGMA(slice_sigma, z, y, x); \
    const float limit = similar * own_sigma * own_sigma;

// Arguments of the kernels that filter groups.
#define GROUP_ARGUMENTS \
    __global const float *noisy, BASIC_ARGUMENT PLACE_ARGUMENTS, __global const int4 *offsets, __global const uint *keys, \
    __global const float *levels, int slices, int first_slice, MAP_ARGUMENTS TIME_ARGUMENTS SPECTRUM_ARGUMENT \
    float similar, float threshold, __global const float *kaiser, __global const float *correlation, \
    float scale, float largest, float units, __global int *sums, __global int *weights
