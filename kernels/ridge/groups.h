// Groups of similar patches in images or volumes, which lie one after the other with no margin.
//
// Needs: common/match_key.h. Constants: NEIGHBOURS; PZ, PY, PX, the sides of a patch; STEP_Z, STEP_Y, STEP_X; SIGMA_MAP.
// Shapes: images (volumes, nz, ny, nx); offsets (displacements) as (0, dz, dy, dx), the first one zero; keys (matched, layers, rows,
//   NEIGHBOURS, columns), of which all channels of a volume share those of the first one; levels (volumes, slices): sigma of every
//   slice, that of the first one at `first_slice`; variation (map_ny, map_pitch), whose pixel (map_y, map_x) is the origin.

#define PIXELS (PZ * PY * PX)

// Factor that the variance of a patch is at least, relative to that of its reference.
#define LEAST_FACTOR 1e-4f

#define SHAPE_ARGUMENTS int nz, int ny, int nx, int first_z, int last_z, int layers, int first_y, int last_y, int rows, \
                        int first_x, int last_x, int columns
#define MATCH_ARGUMENTS int matched, __global const int4 *offsets, __global const uint *keys, \
                        __global const float *levels, int slices, int first_slice
#if SIGMA_MAP
#define MAP_ARGUMENTS __global const float *variation, int map_pitch, int map_y, int map_x,
#define VARIED(y, x) variation[((y) + map_y + PY / 2) * map_pitch + (x) + map_x + PX / 2]
#else
#define MAP_ARGUMENTS
#define VARIED(y, x) 1.0f
#endif

// Position of the reference with this number along an axis.
static inline int reference_at(int number, int step, int first, int last)
{
    return min(first + number * step, last);
}

// Distance in memory from the first pixel of a patch to pixel `p`.
static inline int pixel_ahead(int p, int ny, int nx)
{
    return (p / (PY * PX) * ny + p / PX % PY) * nx + p % PX;
}

// How strong noise still is in a partly filtered group, in sigma: 1 at first. `first` and `second` are the sums over all of its `count`
// pixels of what has been removed, in sigma, and of the squares.
static inline float remaining_noise(float first, float second, float count, float tau)
{
    const float mean = first / count;
    const float removed = sqrt(max(second / count - mean * mean, 0.0f));
    return max(max(1.0f - removed, tau + 1e-6f), 0.1f);
}

// Whole number that a patch weighs, whose estimate has the variance `variance`; `units` stand for a weight of 1, the largest.
static inline int patch_weight(float variance, float units)
{
    return convert_int_rte(units / max(NEIGHBOURS * variance, 1.0f));
}
