// The standard deviation of the noise of a pixel.
//
// Constants: SPECKLE = 1: `relative` times the mean grey level (multiplicative noise); else SIGMA_MAP = 1: the sigma of the frame
//   times `variation`, a padded image; 0: the sigma of the frame.

#define NOISE_ARGUMENTS __global const float *levels, __global const float *variation, float relative
#define NOISE levels, variation, relative

static inline float noise_of(NOISE_ARGUMENTS, int frame, size_t at, float mean)
{
    if (SPECKLE)
        return relative * fabs(mean);
    return SIGMA_MAP ? levels[frame] * variation[at] : levels[frame];
}

// Its inverse, finite even where there is no noise.
static inline float over_noise(float noise)
{
    return 1.0f / fmax(noise, 1e-18f);
}
