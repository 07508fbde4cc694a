// Weights (1 - t / 8)^8, which approximate exp(-t) for t >= 0: CPU compilers do not vectorise exponentials.

// `eighth` is t / 8.
static inline float falling(float eighth)
{
    const float one = fmax(1.0f - eighth, 0.0f);
    const float two = one * one;
    const float four = two * two;
    return four * four;
}

// With eighth = (x / GAUSSIAN(width))^2 the weight is a Gaussian of this standard deviation.
#define GAUSSIAN(width) (4.0f * (width))
