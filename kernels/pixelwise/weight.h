// The weight of a patch by its distance, and powers of two.
//
// Constants: LANES; CHANNELS; WEIGHTS: 0 = exp(-max(d - 2, 0) / h^2), 1 = exp(-d / h^2), 2 = (1 - d / h^2)^2 for d < h^2, else 0, with d in
//   units of sigma squared; NVIDIA, 1 for its exponential.
// Needs: common/lanes.h.

// 2^x for x <= 0, to 3e-6 of it; 0 below 2^-126.
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
    return x > -126.0f ? AS_REAL(AS_WHOLE(power) + (AS_WHOLE(shifted) << 23)) : (real)0.0f;
}

// Without the code for the smallest numbers, which would cost as much as all the rest of a weight.
#if NVIDIA
static inline float flushed_power(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
#define POWER(exponent) flushed_power(exponent)
#elif LANES == 1
static inline float flushed_power(float x)
{
    return x > -126.0f ? native_exp2(x) : 0.0f;
}
#define POWER(exponent) flushed_power(exponent)
#else
#define POWER(exponent) power_of_two(exponent)
#endif

// Of a distance `d`; `unit` is what `distance_unit` returned, `start` is 2 log2(e) / h^2 for WEIGHTS 0, else 0.
static inline real weight_of(real d, real unit, float start)
{
    if (WEIGHTS == 2) {
        const real left = fmax(fma(-d, unit, (real)1.0f), (real)0.0f);
        return left * left;
    }
    return POWER(fmin(fma(-d, unit, (real)start), (real)0.0f));
}

// What a sum of squares is multiplied by: 1 / (h sigma)^2 divided by the number of values (as weights, of their sum), for
// exponentials to base 2 times log2(e). Bounded, so that equal patches have a weight of 1 even without noise.
static inline float distance_unit(float strength, float sigma, float count)
{
    const float root = fmin(1.0f / (strength * sigma), 1e15f);
    return (WEIGHTS == 2 ? 1.0f : 1.44269504f) * (root * root) / count;
}

// Returns what a sum of squares over all channels is multiplied by, and in `ratios` what those of each are before: a channel with
// more noise counts less, one without none, unless it is the only one. `levels` of channels are `apart`.
static inline float channel_units(__global const float *levels, int apart, float strength, float count, float *ratios)
{
    int noisy = 0;
    float largest = 0.0f;
    for (int c = 0; c < CHANNELS; ++c) {
        const float level = levels[(size_t)c * apart];
        noisy += level > 0.0f;
        ratios[c] = CHANNELS > 1 && !(level > 0.0f) ? 0.0f : distance_unit(strength, level, count);
        largest = fmax(largest, ratios[c]);
    }
    for (int c = 0; c < CHANNELS; ++c)
        ratios[c] = largest > 0.0f ? ratios[c] / largest : 1.0f;
    return largest / max(noisy, 1);
}

// What the kernels that average pixels begin with: the frame that is filtered, and a unit for all distances, with what the squares
// of each channel are multiplied by before.
#define AVERAGED_FRAME \
    const int frame = get_global_id(2), t = frame / nz + t0, z = frame % nz + z0; \
    const size_t plane = (size_t)pny * pitch, size = (size_t)snt * snz * plane; \
    float ratios[CHANNELS]; \
    const float count = GAUSSIAN ? 1.0f : (float)(PATCH * PATCH * (2 * RADIUS_Z + 1)); \
    const float unit = channel_units(levels + frame, nt * nz, strength, count, ratios); \
    const float start = WEIGHTS == 0 ? 2.88539008f / (strength * strength) : 0.0f;

// Arguments of the kernels that average pixels; see average_rows.cl.
#define AVERAGE_ARGUMENTS \
    __global const float *spread, int snt, int snz, int pny, int pitch, int t0, int z0, int z_start, int length_z, int skip, \
    int nt, int nz, int ny, int nx, __global const float *levels, __global const float *variation, int map_y, int map_x, int map_nx, \
    float strength, __constant float *taps, int first_out, int frames_out, __global float *out
