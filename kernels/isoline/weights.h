// Weights that fall as exp(-t) does, t >= 0: (1 - t / 8)^8. Compilers for CPUs have no vectors of exponentials.

// `eighth` is t / 8.
static inline float falling(float eighth)
{
    const float one = fmax(1.0f - eighth, 0.0f);
    const float two = one * one;
    const float four = two * two;
    return four * four;
}

// x / GAUSSIAN(width), squared, is the eighth that makes a Gaussian of this standard deviation.
#define GAUSSIAN(width) (4.0f * (width))
