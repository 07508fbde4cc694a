// Averages the noisy voxels of a window, weighted by the similarity of the guide and of its mean: exp(-((g - g')^2 + 3 (m - m')^2)
// / (4 h^2)). A work-item averages for DEPTH voxels along z, LANES at a time along x, so that each value it loads serves them all.
//
// Reference: Manjon et al. 2012, section 2.3 (PRI-NLM3D).
// Grid: (nx / LANES, ny, volumes * nz / DEPTH), rounded up to whole groups.
// Constants: RADIUS_Z, RADIUS, of the window; DEPTH; LANES, 1 on GPUs; SIGMA_MAP.
// Shapes: spread, as spread_guide makes it; out (nt, nz, ny, nx); levels (nt, nz); variation (map_ny, map_nx), whose voxel
//   (map_y, map_x) is that of the first one yielded.
// Cost: 9 instructions a pair, one of them the exponential, which vectors take 10 for; 3 (1 + 2 RADIUS_Z / DEPTH) / (2 RADIUS_Z + 1)
//   words loaded.
// Products that are added are written as fma: results do not depend on how loops are unrolled.

#include "common/lanes.h"

#if LANES == 1
#define WEIGHT(exponent) native_exp2(exponent)
#else
#define WEIGHT(exponent) power_of_two(exponent)
#endif

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

__kernel void average_similar(__global const float *spread, int volumes, int pnz, int pny, int pitch, int nz, int ny, int nx,
                              __global const float *levels, __global const float *variation, int map_y, int map_x, int map_nx,
                              float strength, __global float *out)
{
    const int x = get_global_id(0) * LANES;
    const int y = get_global_id(1);
    const int blocks = (nz + DEPTH - 1) / DEPTH;
    const int volume = get_global_id(2) / blocks;
    const int z = get_global_id(2) % blocks * DEPTH;
    if (x >= nx || y >= ny)
        return;
    const size_t plane = (size_t)pny * pitch;
    const size_t size = (size_t)volumes * pnz * plane;
    __global const float *corner = spread + ((size_t)volume * pnz + z) * plane + (size_t)y * pitch + x;
    real factor = 1.0f;
#if SIGMA_MAP
    float factors[LANES];
    for (int k = 0; k < LANES; ++k)
        factors[k] = variation[(y + map_y) * map_nx + min(x + k, nx - 1) + map_x];
    factor = *(const unaligned_real *)factors;
#endif
    real levels_here[DEPTH], means[DEPTH], voxels[DEPTH], decays[DEPTH], totals[DEPTH], weights[DEPTH];
    #pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
        __global const float *centre = corner + (k + RADIUS_Z) * plane + (size_t)RADIUS * pitch + RADIUS;
        levels_here[k] = AT(centre);
        means[k] = AT(centre + size);
        voxels[k] = AT(centre + 2 * size);
        // log2(e) / (4 h^2); bounded, so that equal values have a weight of 1 even without noise.
        const real h = 2.0f * strength * levels[volume * nz + min(z + k, nz - 1)] * factor;
        decays[k] = -fmin((real)1.44269504f / (h * h), (real)1e30f);
        totals[k] = 0.0f;
        weights[k] = 0.0f;
    }
    for (int dy = 0; dy <= 2 * RADIUS; ++dy)
        for (int dx = 0; dx <= 2 * RADIUS; ++dx) {
            __global const float *other = corner + (size_t)dy * pitch + dx;
            #pragma unroll
            for (int dz = 0; dz < DEPTH + 2 * RADIUS_Z; ++dz) {
                const real level = AT(other + dz * plane);
                const real mean = AT(other + dz * plane + size);
                const real voxel = AT(other + dz * plane + 2 * size);
                #pragma unroll
                for (int k = 0; k < DEPTH; ++k)
                    if (k <= dz && dz <= k + 2 * RADIUS_Z) {
                        const real dg = levels_here[k] - level;
                        const real dm = means[k] - mean;
                        const real weight = WEIGHT(fma(dm, dm, dg * dg) * decays[k]);
                        weights[k] += weight;
                        totals[k] = fma(weight, voxel - voxels[k], totals[k]);
                    }
            }
        }
    #pragma unroll
    for (int k = 0; k < DEPTH; ++k)
        if (z + k < nz) {
            const real result = voxels[k] + totals[k] / weights[k];
            __global float *to = out + (((size_t)volume * nz + z + k) * ny + y) * nx + x;
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
