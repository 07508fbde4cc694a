// Straight segments of LENGTH pixels that leave a pixel in one of 32 directions, and the likelihood that two samples of grey
// levels have the same mean.
//
// Reference: Perrot et al. 2014, section 5.1 and figure 2; the same as tests/reference/isoline_patterns.py.
// Constants: LENGTH; SPECKLE = 1: grey levels follow a gamma distribution with a known number of looks; 0: a normal
//   distribution of unknown variance.

#define DIRECTIONS 32

// Offset (x, y) of pixel k = 1 … LENGTH of a segment; a constant if the arguments are.
static inline int2 segment_pixel(int direction, int k)
{
    const int quarter = direction >> 3;
    const int inner = direction & 7;
    const bool steep = inner > 4;
    const int shallow = steep ? 8 - inner : inner;
    const float slope = shallow == 0 ? 0.0f : shallow == 1 ? 0.19891237f : shallow == 2 ? 0.41421356f
                      : shallow == 3 ? 0.66817864f : 1.0f;
    const int aside = (int)((float)k * slope + 0.5f);
    const int2 first = steep ? (int2)(aside, -k) : (int2)(k, -aside);
    // A quarter turn maps +x to -y, and +y to +x.
    return quarter == 0 ? first
         : quarter == 1 ? (int2)(first.y, -first.x)
         : quarter == 2 ? (int2)(-first.x, -first.y)
                        : (int2)(-first.y, first.x);
}

static inline int turned(int direction, int by)
{
    return (direction + by) & (DIRECTIONS - 1);
}

// A sample of grey levels: their number, their mean, and the sum of squared differences from it. The mean is relative to one
// level, the same in all samples that are joined, so that a high grey level costs no precision. With SPECKLE the spread is that
// of a gamma distribution: the sum of log(mean / grey level), half of the deviance for one look.
typedef struct {
    float number;
    float mean;
    float spread;
} Sample;

// Lower bounds for speckle: of a mean, and of a pixel relative to the mean of its segment, so that a pixel of 0 is not infinitely
// unlikely. Signs are ignored.
#define DARKEST 1e-30f
#define FAINTEST (1.0f / 1024.0f)

// By how much the spread of two speckled samples together exceeds the sum of their own.
static inline float spread_between(Sample a, Sample b, float level)
{
    const float share = b.number / (a.number + b.number);
    const float mean_a = fmax(fabs(level + a.mean), DARKEST);
    const float mean_b = fmax(fabs(level + b.mean), DARKEST);
    const float apart = mean_b - mean_a;
    return a.number * log1p(apart * share / mean_a) + b.number * log1p(apart * (share - 1.0f) / mean_b);
}

// The two samples as one. `level` is the grey level that means are relative to.
static inline Sample joined(Sample a, Sample b, float level)
{
    Sample both;
    const float share = b.number / (a.number + b.number);
    const float apart = b.mean - a.mean;
    both.number = a.number + b.number;
    both.mean = fma(apart, share, a.mean);
#if SPECKLE
    both.spread = a.spread + b.spread + spread_between(a, b, level);
#else
    both.spread = fma(apart * apart, a.number * share, a.spread + b.spread);
#endif
    return both;
}

// Log-likelihood ratio against a common mean of two samples: equation 8, (n + p) (log sigma_1^2 - log sigma_2^2). Where neither
// sample varies, any difference makes it infinite. With SPECKLE it is that of gamma distributions:
// 2 looks ((n + p) log mean - n log mean_n - p log mean_p).
static inline float log_ratio(Sample a, Sample b, float both_spread, float level, float looks)
{
#if SPECKLE
    return 2.0f * looks * spread_between(a, b, level);
#else
    const float own = a.spread + b.spread;
    if (own > 0.0f)
        return (a.number + b.number) * log(both_spread / own);
    return both_spread > 0.0f ? INFINITY : 0.0f;
#endif
}

// The segment of `direction` that leaves the pixel at `pixels`, relative to `level`.
static inline Sample segment(__global const float *pixels, int pitch, int direction, float level)
{
    // Relative to the first pixel, sums of small integers are exact, so that ties, which are frequent, stay ties.
    const int2 next = segment_pixel(direction, 1);
    const float first = pixels[next.y * pitch + next.x];
    float sum = 0.0f;
    float squares = 0.0f;
    for (int k = 2; k <= LENGTH; ++k) {
        const int2 at = segment_pixel(direction, k);
        const float apart = pixels[at.y * pitch + at.x] - first;
        sum += apart;
        squares = fma(apart, apart, squares);
    }
    Sample sample;
    sample.number = LENGTH;
    // The division comes last, so that segments of the same grey levels in another order have the same mean. Its last bit is put
    // right, as GPUs need not: segments that do not vary have exactly their grey level.
    const float total = fma(first - level, LENGTH, sum);
    const float about = total / LENGTH;
    sample.mean = fma(fma(-about, LENGTH, total), 1.0f / LENGTH, about);
#if SPECKLE
    const float mean = fmax(fabs(level + sample.mean), DARKEST);
    float product = 1.0f;
    for (int k = 1; k <= LENGTH; ++k) {
        const int2 at = segment_pixel(direction, k);
        product *= fmax(fabs(pixels[at.y * pitch + at.x]) / mean, FAINTEST);
    }
    sample.spread = fmax(-log(product), 0.0f);
#else
    sample.spread = fmax(LENGTH * squares - sum * sum, 0.0f) / LENGTH;
#endif
    return sample;
}
