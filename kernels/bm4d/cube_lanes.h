// The transforms of cubes on a CPU: eight cubes side by side, in the lanes of vectors; then eight coefficients of all cubes.
//
// Needs: REAL = float8, cubes.h, line_transform.h, cube_groups.h, common/float8_rows.h. Constants: NEIGHBOURS.

// Eight neighbouring values of a cube, z first, lie in one row of eight voxels or in two of four.
#define ROWS (CUBE / 8)
#define IN_VOLUME(r) ((8 * (r)) / (CY * CX) * plane + (8 * (r)) / CX % CY * pitch)

typedef float4 UNALIGNED_FOUR __attribute__((aligned(4)));
typedef int4 UNALIGNED_INT_FOUR __attribute__((aligned(4)));

static inline float8 load_row(__global const float *first, int pitch)
{
    if (CX == 8)
        return ROW(first);
    // One by one: Oclgrind crashes where two vectors are joined.
    const float4 a = *(__global const UNALIGNED_FOUR *)first, b = *(__global const UNALIGNED_FOUR *)(first + pitch);
    return (float8)(a.s0, a.s1, a.s2, a.s3, b.s0, b.s1, b.s2, b.s3);
}

static inline void add_row(__global int *first, int pitch, int8 values)
{
#if CX == 8
    *(__global UNALIGNED_INT *)first += values;
#else
    *(__global UNALIGNED_INT_FOUR *)first += values.lo;
    *(__global UNALIGNED_INT_FOUR *)(first + pitch) += values.hi;
#endif
}

// Transforms eight cubes, one in each lane.
static inline void cubes_forward(float8 *v)
{
    for (int line = 0; line < CUBE / CX; ++line)
        line_forward(v + line * CX, CX, 1);
    for (int z = 0; z < CZ; ++z)
        for (int x = 0; x < CX; ++x)
            line_forward(v + z * CY * CX + x, CY, CX);
    for (int k = 0; k < CY * CX; ++k)
        line_forward(v + k, CZ, CY * CX);
}

static inline void cubes_inverse(float8 *v)
{
    for (int k = 0; k < CY * CX; ++k)
        line_inverse(v + k, CZ, CY * CX);
    for (int z = 0; z < CZ; ++z)
        for (int x = 0; x < CX; ++x)
            line_inverse(v + z * CY * CX + x, CY, CX);
    for (int line = 0; line < CUBE / CX; ++line)
        line_inverse(v + line * CX, CX, 1);
}

// Transforms eight cubes, one in each lane, and puts them into v from cube k0 on; v holds [row of eight coefficients][cube].
static inline void spectra_of_eight(float8 *v, float8 *cubes, int k0)
{
    cubes_forward(cubes);
    for (int r = 0; r < ROWS; ++r) {
        transpose(cubes + 8 * r);
        for (int k = 0; k < 8 && k0 + k < NEIGHBOURS; ++k)
            v[r * NEIGHBOURS + k0 + k] = cubes[8 * r + k];
    }
}

// Stores the codes of pairs in small blocks, and counts those in large ones; see cube_groups.h.
static inline void count_pairs(CODE *codes, int *counts, const int4 *place, int size)
{
    for (int k = 0; k < COUNTED_BLOCKS * CUBE; ++k)
        counts[k] = 0;
    for (int p = 0; p < size - 1; ++p) {
        for (int q = p + 1; q < size; ++q) {
            const int code = shared_noise(place[p], place[q]);
            const int stride = 1 << (31 - clz(p ^ q));
            if (stride < COUNTED_STRIDE)
                codes[pair_place(p, q)] = code;
            else if (code != APART)
                counts[counted_block(stride, p & ~(2 * stride - 1)) * CUBE + code]++;
        }
    }
}

// Loads and transforms the cubes of a group, `there` voxels from the first one.
static inline void load_cubes(float8 *v, __global const float *voxels, const long *there, size_t plane, int pitch, float level,
                              float inverse, int size)
{
    for (int k0 = 0; k0 < size; k0 += 8) {
        float8 cubes[CUBE];
        for (int r = 0; r < ROWS; ++r) {
            float8 *eight = cubes + 8 * r;
            #pragma unroll
            for (int k = 0; k < 8; ++k) {
                const long at = k0 + k < size ? there[k0 + k] : 0;
                eight[k] = (load_row(voxels + at + IN_VOLUME(r), pitch) - level) * inverse;
            }
            transpose(eight);
        }
        spectra_of_eight(v, cubes, k0);
    }
}

#if TIMES > 1
// The same of the means A of cubes over time, or of their differences E to these (see motion.h).
static inline void load_over_time(float8 *v, __global const float *voxels, const int4 *place, const int4 *moved,
                                  const float *share, bool difference, size_t deep, size_t plane, int pitch, int nz, int ny,
                                  int nx, int z, int y, int x, float level, float inverse, int size)
{
    for (int k0 = 0; k0 < size; k0 += 8) {
        float8 cubes[CUBE];
        for (int e = 0; e < CUBE; ++e)
            cubes[e] = (float8)0.0f;
        for (int k = 0; k < 8 && k0 + k < size; ++k) {
            for (int t = 0; t < TIMES; ++t) {
                if (share[t] == 0.0f)
                    continue;
                const float part = !difference ? share[t] : t == BEFORE ? 1.0f - share[t] : -share[t];
                const int4 at = MOVED(place[k0 + k], moved[t]);
                __global const float *there = voxels + (t - BEFORE) * (long)deep + at.y * (long)plane + at.z * pitch + at.w;
                for (int r = 0; r < ROWS; ++r)
                    cubes[8 * r + k] += part * (load_row(there + IN_VOLUME(r), pitch) - level);
            }
        }
        for (int r = 0; r < ROWS; ++r) {
            for (int k = 0; k < 8; ++k)
                cubes[8 * r + k] *= inverse;
            transpose(cubes + 8 * r);
        }
        spectra_of_eight(v, cubes, k0);
    }
}
#endif
