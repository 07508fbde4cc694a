// Shrinks the stacks that one item of a team holds: transform, threshold or Wiener filter, transform back.
//
// Constants: WIENER, SHARED_NOISE, SPECTRUM; KALMAN = 1 for a Kalman filter of the reference instead.
// Needs: bm3d/team.h, stack_transform.h, shrinkage.h, shared_noise.h.

// Energy of what the patches of a group have in common but for its mean, in units of the noise in one coefficient: the part of an
// item.
static inline float common_energy(const float *v, __global const float *covariance, int size, bool holds_mean)
{
    float energy = 0.0f;
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        float total = 0.0f;
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            total += k < size ? v[i * NEIGHBOURS + k] : 0.0f;
        const float alone = SPECTRUM ? covariance[i * PATCH] : 1.0f;
        energy += i == 0 && holds_mean ? 0.0f : total * total / alone;
    }
    return energy / size;
}

#if !KALMAN
// Turns the stacks that an item holds into the part that is removed, or for a Wiener filter stacks of the basic estimate into the
// shares of the coefficients that are; returns the variance of the noise that remains.
static inline float removed_parts(float *stacks, float *variances, __global const float *covariance, int size,
                                  float gain, float threshold, float common, bool holds_mean)
{
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        float *stack = stacks + i * NEIGHBOURS;
        float *variance = variances + i * NEIGHBOURS;
        const float alone = SPECTRUM ? covariance[i * PATCH] : 1.0f;
        stack_forward(stack, size);
        if (SHARED_NOISE)
            variances_of_sums(variance, size, alone);
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k) {
            // The mean of the group is always kept: it is the grey level.
            const bool mean = i == 0 && k == 0 && holds_mean;
            const float noise = gain * (SHARED_NOISE ? variance[k] : alone);
            const float limit = k == 0 ? common : threshold;
            if (WIENER)
                stack[k] = removed_share(mean ? INFINITY : stack[k], limit, noise, &sum);
            else
                stack[k] = removed_hard(stack[k], mean ? 0.0f : limit, noise, &sum);
        }
        if (!WIENER)
            stack_inverse(stack, size);
    }
    return sum;
}

// Turns the stacks that an item holds into the part that is removed, by shares of their coefficients.
static inline void remove_shares(float *v, const float *shares, int size)
{
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        float *stack = v + i * NEIGHBOURS;
        stack_forward(stack, size);
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            stack[k] *= shares[i * NEIGHBOURS + k];
        stack_inverse(stack, size);
    }
}

// Turns the stacks that an item holds into the part that is removed; returns the variance of the noise that remains.
static inline float shrink_stacks(float *v, float *guide, float *variances, __global const float *covariance, int size,
                                  float gain, float threshold, float common, bool holds_mean)
{
    float *stacks = WIENER ? guide : v;
    const float sum = removed_parts(stacks, variances, covariance, size, gain, threshold, common, holds_mean);
    if (WIENER)
        remove_shares(v, guide, size);
    return sum;
}
#else
// The same of the reference alone. Its patches are filtered one after another, from the least similar one to the reference, see
// kalman_step; all groups weigh alike.
static inline float shrink_stacks(float *v, float *guide, float *variances, __global const float *covariance, int size,
                                  float gain, float strength, float common, bool holds_mean)
{
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const float noise = strength * (SPECTRUM ? covariance[i * PATCH] : 1.0f);
        float state = 0.0f;
        #pragma unroll
        for (int k = NEIGHBOURS - 1; k >= 0; --k) {
            const float own = guide[i * NEIGHBOURS + k];
            const float next = kalman_step(state, v[i * NEIGHBOURS + k], own, noise);
            state = k == size - 1 ? own : k < size ? next : state;
        }
        v[i * NEIGHBOURS] = gain * (v[i * NEIGHBOURS] - state);
    }
    return 0.0f;
}
#endif
