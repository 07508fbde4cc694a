// A team of TEAM work-items that holds the cubes of one group in local memory, and their transforms on a GPU.
//
// An item takes a quarter of a cube: the columns x = q, q + 4 over all (z, y), then whole lines along x.
// Constants: those of cubes.h, NEIGHBOURS, TEAM, LINE (length of a cube in local memory, padded).
// Needs: cube_groups.h; see motion.h for what A and E are.

#define QUARTER (CUBE / 4)
#define JOBS ((4 * NEIGHBOURS + TEAM - 1) / TEAM)

// Voxel of a cube, z first, of value j in the first arrangement of quarter q.
#define COLUMN_VOXEL(q, j) ((j) % (CZ * CY) * CX + (q) + 4 * ((j) / (CZ * CY)))
// The same in the second one: whole lines along x.
#define ROW_VOXEL(q, j) (((q) + 4 * ((j) / CX)) * CX + (j) % CX)

static inline void columns_forward(float *v)
{
    #pragma unroll
    for (int part = 0; part < CX / 4; ++part) {
        #pragma unroll
        for (int z = 0; z < CZ; ++z)
            line_forward(v + part * CZ * CY + z * CY, CY, 1);
        #pragma unroll
        for (int y = 0; y < CY; ++y)
            line_forward(v + part * CZ * CY + y, CZ, CY);
    }
}

static inline void columns_inverse(float *v)
{
    #pragma unroll
    for (int part = 0; part < CX / 4; ++part) {
        #pragma unroll
        for (int y = 0; y < CY; ++y)
            line_inverse(v + part * CZ * CY + y, CZ, CY);
        #pragma unroll
        for (int z = 0; z < CZ; ++z)
            line_inverse(v + part * CZ * CY + z * CY, CY, 1);
    }
}

#if TIMES > 1
// The part of an item in the squared difference of two cubes.
static inline float part_of_difference(__global const float *one, __global const float *other, size_t plane, int pitch, int item)
{
    float d2 = 0.0f;
    for (int e = item; e < CUBE; e += TEAM) {
        const size_t voxel = e / (CY * CX) * plane + e / CX % CY * pitch + e % CX;
        const float difference = one[voxel] - other[voxel];
        d2 = fma(difference, difference, d2);
    }
    return d2;
}

// Variances of the noise in A and E of a cube.
static inline float2 noise_over_time(int4 place, __local const int4 *moved, __local const float *share,
                                     __global const float *slice_sigma, int slices, int z, int y, int x, int nz, int ny, int nx
                                     MAP_PARAMETERS)
{
    float2 squares = (float2)(0.0f);
    for (int t = 0; t < TIMES; ++t) {
        if (share[t] == 0.0f)
            continue;
        const int4 at = MOVED(place, moved[t]);
        const float s = CUBE_SIGMA(slice_sigma + (t - BEFORE) * slices, z + at.y, y + at.z, x + at.w);
        const float rest = t == BEFORE ? 1.0f - share[t] : share[t];
        squares += s * s * (float2)(share[t] * share[t], rest * rest);
    }
    return squares;
}
#define OVER_TIME , __local const int4 *moved, __local const float *share, bool difference, size_t deep, int nz, int ny, int nx, \
                  int z, int y, int x
#else
#define OVER_TIME
#endif

// Loads the cubes of a group, or their means A over time or the differences E to these, and transforms them along y and z.
static inline void load_columns(__local float *cubes, __local const int4 *place, __global const float *corner, size_t plane,
                                int pitch, float level, float inverse, int item, int size OVER_TIME)
{
    #pragma unroll 1
    for (int job = 0; job < JOBS; ++job) {
        const int k = (job * TEAM + item) / 4, q = item % 4;
        if (k < size) {
            const int4 offset = place[k];
            float v[QUARTER];
#if TIMES > 1
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j)
                v[j] = 0.0f;
            #pragma unroll 1
            for (int t = 0; t < TIMES; ++t) {
                if (share[t] == 0.0f)
                    continue;
                const float part = !difference ? share[t] : t == BEFORE ? 1.0f - share[t] : -share[t];
                const int4 there = MOVED(offset, moved[t]);
                __global const float *first = corner + (t - BEFORE) * (long)deep + there.y * (long)plane + there.z * pitch
                                              + there.w;
                #pragma unroll
                for (int j = 0; j < QUARTER; ++j) {
                    const int e = COLUMN_VOXEL(0, j);
                    v[j] = fma(part, first[e / (CY * CX) * plane + e / CX % CY * pitch + e % CX + q] - level, v[j]);
                }
            }
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j)
                v[j] *= inverse;
#else
            __global const float *first = corner + offset.y * (long)plane + offset.z * pitch + offset.w;
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j) {
                const int e = COLUMN_VOXEL(0, j);
                v[j] = (first[e / (CY * CX) * plane + e / CX % CY * pitch + e % CX + q] - level) * inverse;
            }
#endif
            columns_forward(v);
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j)
                cubes[k * LINE + COLUMN_VOXEL(q, j)] = v[j];
        }
    }
}

// Transforms the cubes along x, or back. Two functions: one for both ways is miscompiled by PoCL.
#define ROWS_FUNCTION(NAME, TRANSFORM_LINE) \
static inline void NAME(__local float *cubes, int item, int size) \
{ \
    _Pragma("unroll 1") \
    for (int job = 0; job < JOBS; ++job) { \
        const int k = (job * TEAM + item) / 4, q = item % 4; \
        if (k < size) { \
            float v[QUARTER]; \
            _Pragma("unroll") \
            for (int j = 0; j < QUARTER; ++j) \
                v[j] = cubes[k * LINE + ROW_VOXEL(q, j)]; \
            _Pragma("unroll") \
            for (int j = 0; j < QUARTER; j += CX) \
                TRANSFORM_LINE(v + j, CX, 1); \
            _Pragma("unroll") \
            for (int j = 0; j < QUARTER; ++j) \
                cubes[k * LINE + ROW_VOXEL(q, j)] = v[j]; \
        } \
    } \
}
ROWS_FUNCTION(rows_forward, line_forward)
ROWS_FUNCTION(rows_inverse, line_inverse)

// Transforms the cubes back along z and y, and adds them to the sums; `slices` has sigma of each slice from the reference's on.
static inline void add_cubes(__local const float *cubes, __local const int4 *place, size_t corner, size_t plane, int pitch,
                             __global const float *slices, __global const float *kaiser, float factor, float largest, int weight,
                             __global int *sums, __global int *weights, int item, int size)
{
    #pragma unroll 1
    for (int job = 0; job < JOBS; ++job) {
        const int k = (job * TEAM + item) / 4, q = item % 4;
        if (k < size) {
            const int4 offset = place[k];
            const size_t first = corner + offset.y * (long)plane + offset.z * pitch + offset.w;
            float v[QUARTER];
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j)
                v[j] = cubes[k * LINE + COLUMN_VOXEL(q, j)];
            columns_inverse(v);
            float inverse[CZ];
            #pragma unroll
            for (int dz = 0; dz < CZ; ++dz)
                inverse[dz] = factor / max(slices[offset.y + dz], SMALLEST_SIGMA);
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j) {
                const int e = COLUMN_VOXEL(0, j);
                const float taken = v[j] * (inverse[e / (CY * CX)] * kaiser[e + q]);
                atomic_add(sums + first + e / (CY * CX) * plane + e / CX % CY * pitch + e % CX + q,
                           convert_int_rte(clamp(taken, -largest, largest)));
            }
            if (q == 0)
                atomic_add(weights + first, weight);
        }
    }
}
