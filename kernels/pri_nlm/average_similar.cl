// Averages the noisy voxels of a window, weighted by the similarity of the guide and of its mean: exp(-((g - g')^2 + 3 (m - m')^2)
// / (4 h^2)). A work-item averages for DEPTH voxels along z, LANES at a time along x, so that each value it loads serves them all.
// These blocks begin at multiples of DEPTH, counted from the first slice of the volume: voxels are averaged relative to the first
// one of a block, so that a high grey level costs no precision, and that must not depend on where a tile begins.
//
// Reference: Manjon et al. 2012, section 2.3 (PRI-NLM3D).
// Grid: (nx / LANES, ny, volumes * blocks), rounded up to whole groups.
// Constants: RADIUS_Z, RADIUS, of the window; DEPTH; LANES, 1 on GPUs; NVIDIA, 1 for its exponential; EVEN, 1 where sigma is the
//   same everywhere, and the guide in units of it; SIGMA_MAP.
// Shapes: spread, as spread_guide makes it (PACKED where LANES is 1), whose slice RADIUS_Z is `skip` slices before the first one
//   yielded; out (nt, nz, ny, nx); levels (nt, nz); variation (map_ny, map_nx), whose voxel (map_y, map_x) is that of the first
//   one yielded.
// Cost with EVEN: 7 instructions a pair, one of them the exponential, which vectors take 10 for; for every
//   DEPTH (2 RADIUS_Z + 1) pairs DEPTH + 2 RADIUS_Z loads.
// Products that are added are written as fma, and no others may become one: a sigma that is the same everywhere gives the same
//   bits whether it is told as a number or as a map, and results do not depend on how loops are unrolled.

#pragma OPENCL FP_CONTRACT OFF

#include "common/lanes.h"
#include "pri_nlm/similar.h"

// 2^x for x <= 0, to 3e-6 of it; at least 2^-126.
static inline real power_of_two(real x)
{
    const real bounded = fmax(x, (real)-126.0f);
    // Adding 1.5 * 2^23 leaves the nearest whole number in the last bits.
    const real shifted = bounded + 12582912.0f;
    const real part = bounded - (shifted - 12582912.0f);
    real power = fma(part, (real)0.00958285167f, (real)0.0559064348f);
    power = fma(part, power, (real)0.240240987f);
    power = fma(part, power, (real)0.693124192f);
    power = fma(part, power, (real)1.0f);
    return AS_REAL(AS_WHOLE(power) + (AS_WHOLE(shifted) << 23));
}

// Without the code for the smallest numbers, which would cost as much as all the rest of a pair.
#if NVIDIA
static inline float flushed_power(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
#define WEIGHT(exponent) flushed_power(exponent)
#elif LANES == 1
#define WEIGHT(exponent) native_exp2(exponent)
#else
#define WEIGHT(exponent) power_of_two(exponent)
#endif

// The three values of a voxel.
#if LANES == 1
#define LOAD(at, level, mean, voxel) { \
    const float4 values = vload4(at, spread); \
    level = values.x; \
    mean = values.y; \
    voxel = values.z; \
}
#else
#define LOAD(at, level, mean, voxel) { \
    level = AT(spread + (at)); \
    mean = AT(spread + (at) + size); \
    voxel = AT(spread + (at) + 2 * size); \
}
#endif

__kernel void average_similar(__global const float *spread, int volumes, int pnz, int pny, int pitch,
                              int nz, int ny, int nx, int skip, int blocks,
                              __global const float *levels, __global const float *variation, int map_y, int map_x, int map_nx,
                              float strength, __global float *out)
{
    const int x = get_global_id(0) * LANES;
    const int y = get_global_id(1);
    const int volume = get_global_id(2) / blocks;
    const int z = get_global_id(2) % blocks * DEPTH;
    if (x >= nx || y >= ny)
        return;
    const size_t plane = (size_t)pny * pitch;
    const size_t size = (size_t)volumes * pnz * plane;
    const size_t corner = ((size_t)volume * pnz + z) * plane + (size_t)y * pitch + x;
    real levels_here[DEPTH], means[DEPTH], scales[DEPTH], totals[DEPTH], weights[DEPTH];
    real first;
    #pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
        real voxel;
        LOAD(corner + (k + RADIUS_Z) * plane + (size_t)RADIUS * pitch + RADIUS, levels_here[k], means[k], voxel)
        if (k == 0)
            first = voxel;
        scales[k] = 1.0f;
        if (!EVEN) {
            const float level = levels[volume * nz + clamp(z + k - skip, 0, nz - 1)];
#if SIGMA_MAP
            float each[LANES];
            for (int i = 0; i < LANES; ++i)
                each[i] = guide_scale(strength * (level * variation[(y + map_y) * map_nx + min(x + i, nx - 1) + map_x]));
            scales[k] = *(const unaligned_real *)each;
#else
            scales[k] = guide_scale(strength * level);
#endif
        }
        levels_here[k] *= scales[k];
        means[k] *= scales[k];
        totals[k] = 0.0f;
        weights[k] = 0.0f;
    }
    for (int dy = 0; dy <= 2 * RADIUS; ++dy)
        for (int dx = 0; dx <= 2 * RADIUS; ++dx) {
            const size_t other = corner + (size_t)dy * pitch + dx;
            #pragma unroll
            for (int dz = 0; dz < DEPTH + 2 * RADIUS_Z; ++dz) {
                real level, mean, voxel;
                LOAD(other + dz * plane, level, mean, voxel)
                voxel -= first;
                #pragma unroll
                for (int k = 0; k < DEPTH; ++k)
                    if (k <= dz && dz <= k + 2 * RADIUS_Z) {
                        const real dg = levels_here[k] - (EVEN ? level : level * scales[k]);
                        const real dm = means[k] - (EVEN ? mean : mean * scales[k]);
                        const real weight = WEIGHT(fma(-dm, dm, -(dg * dg)));
                        weights[k] += weight;
                        totals[k] = fma(weight, voxel, totals[k]);
                    }
            }
        }
    #pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
        const int slice = z + k - skip;
        if (slice >= 0 && slice < nz) {
            const real result = first + totals[k] / weights[k];
            __global float *to = out + (((size_t)volume * nz + slice) * ny + y) * nx + x;
            if (x + LANES <= nx)
                PUT(to) = result;
            else {
                float last[LANES];
                *(unaligned_real *)last = result;
                for (int i = 0; x + i < nx; ++i)
                    to[i] = last[i];
            }
        }
    }
}
