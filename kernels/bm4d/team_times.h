// Cubes of other times on a GPU; see motion.h for what A and E are.
//
// Needs: cube_team.h, motion.h.

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

// Loads the means A of the cubes over time, or their differences E to these, and transforms them along y and z.
static inline void load_over_time(__local float *cubes, __local const int4 *place, __local const int4 *moved,
                                  __local const float *share, bool difference, __global const float *corner, size_t deep,
                                  size_t plane, int pitch, int nz, int ny, int nx, int z, int y, int x, float level,
                                  float inverse, int item, int size)
{
    #pragma unroll 1
    for (int job = 0; job < JOBS; ++job) {
        const int k = (job * TEAM + item) / 4, q = item % 4;
        if (k < size) {
            const int4 offset = place[k];
            float v[QUARTER];
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
            columns_forward(v);
            #pragma unroll
            for (int j = 0; j < QUARTER; ++j)
                cubes[k * LINE + COLUMN_VOXEL(q, j)] = v[j];
        }
    }
}

#endif
