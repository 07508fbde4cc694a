// Shrinks the stacks of a whole group, for CPUs: transform, threshold or Wiener filter, transform back.
//
// Constants: WIENER, SHARED_NOISE, SPECTRUM; KALMAN = 1 for a Kalman filter of the reference instead.
// Needs: common/float8_rows.h, stack_transform.h, shrinkage.h, shared_noise.h.

// Energy of what the patches of a group have in common but for its mean, in units of the noise in one coefficient.
static inline float common_energy(const float8 *v, __global const float *correlation, int size)
{
    float8 energy = (float8)0.0f;
    for (int i = 0; i < 8; ++i) {
        float8 total = (float8)0.0f;
        for (int k = 0; k < size; ++k)
            total += v[i * NEIGHBOURS + k];
        if (i == 0)
            total.s0 = 0.0f;
        if (SPECTRUM)
            energy += total * total / ROW(correlation + i * PATCH);
        else
            energy += total * total;
    }
    return lanes_sum(energy) / size;
}

#if !KALMAN
// Turns the stacks of v into the part that is removed; returns the variance of the noise that remains.
static inline float8 shrink_stacks(float8 *v, float8 *basic, float8 *variances, __global const float *correlation, int size,
                                   float gain, float threshold, float common)
{
    float8 sum = (float8)0.0f;
    for (int i = 0; i < 8; ++i) {
        float8 *stack = v + i * NEIGHBOURS;
        float8 *guide = basic + i * NEIGHBOURS;
        float8 *variance = variances + i * NEIGHBOURS;
        const float8 alone = VARIANCES_ALONE(correlation + i * PATCH);
        stack_forward(stack, size);
        if (WIENER)
            stack_forward(guide, size);
        if (SHARED_NOISE)
            variances_of_sums(variance, size, alone);
        // The mean of the group is always kept: it is the grey level.
        if (WIENER && i == 0)
            guide[0].s0 = INFINITY;
        if (!WIENER && i == 0) {
            stack[0].s0 = 0.0f;
            sum.s0 += common > 0.0f ? gain * (SHARED_NOISE ? variance[0] : alone).s0 : 0.0f;
        }
        for (int k = 0; k < size; ++k) {
            const float8 noise = gain * (SHARED_NOISE ? variance[k] : alone);
            const float limit = k == 0 ? common : threshold;
            if (WIENER)
                stack[k] = removed_wiener(stack[k], guide[k], limit, noise, &sum);
            else
                stack[k] = removed_hard(stack[k], limit, noise, &sum);
        }
        stack_inverse(stack, size);
    }
    return sum;
}
#else
// The same of the reference alone. Its patches are filtered one after another, from the least similar one to the reference, see
// kalman_step; all groups weigh alike.
static inline float8 shrink_stacks(float8 *v, float8 *guide, float8 *variances, __global const float *correlation, int size,
                                   float gain, float strength, float common)
{
    for (int i = 0; i < 8; ++i) {
        const float8 noise = strength * VARIANCES_ALONE(correlation + i * PATCH);
        float8 state = guide[i * NEIGHBOURS + size - 1];
        for (int k = size - 2; k >= 0; --k)
            state = kalman_step(state, v[i * NEIGHBOURS + k], guide[i * NEIGHBOURS + k], noise);
        v[i * NEIGHBOURS] = gain * (v[i * NEIGHBOURS] - state);
    }
    return (float8)0.0f;
}
#endif
