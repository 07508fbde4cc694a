// Straight segments of LENGTH pixels that leave a pixel in one of 32 directions, and how grey levels along two of them
// agree.
//
// Reference: Perrot et al. 2014, section 5.1 and figure 2; the same as filters/isoline_patterns.py.
// Constants: LENGTH; SPECKLE = 1: grey levels are of a gamma distribution of known looks; 0: of a normal one of unknown variance.

#define DIRECTIONS 32

// Offset (x, y) of pixel k = 1 … LENGTH of a segment. With constant arguments it is a constant.
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
    // A quarter turn takes +x to -y, and +y to +x.
    return quarter == 0 ? first
         : quarter == 1 ? (int2)(first.y, -first.x)
         : quarter == 2 ? (int2)(-first.x, -first.y)
                        : (int2)(-first.y, first.x);
}

static inline int turned(int direction, int by)
{
    return (direction + by) & (DIRECTIONS - 1);
}

// Some grey levels: how many, their mean, and the sum of their squared differences from it. The mean is relative to
// one and the same level in all that are joined, so that a large level costs no precision. With SPECKLE the spread is what a gamma
// distribution makes of it: the sum of log(mean / grey level), which is half of the deviance of one look.
typedef struct {
    float number;
    float mean;
    float spread;
} Sample;

// Of speckle no mean is less, and no pixel less than such a part of the mean of its segment: one of 0 is not infinitely unlikely.
// Signs do not count.
#define DARKEST 1e-30f
#define FAINTEST (1.0f / 1024.0f)

// By how much the spread of two speckled samples together exceeds their own.
static inline float spread_between(Sample a, Sample b, float level)
{
    const float share = b.number / (a.number + b.number);
    const float mean_a = fmax(fabs(level + a.mean), DARKEST);
    const float mean_b = fmax(fabs(level + b.mean), DARKEST);
    const float apart = mean_b - mean_a;
    return a.number * log1p(apart * share / mean_a) + b.number * log1p(apart * (share - 1.0f) / mean_b);
}

// `level` is what the means are relative to.
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

// How much two samples speak against one mean: equation 8, (n + p) (log sigma_1^2 - log sigma_2^2). Where neither
// varies, any difference does. With SPECKLE it is the same of gamma distributions: 2 looks ((n + p) log mean - n log mean_n -
// p log mean_p).
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
    // Relative to the first pixel, sums of small integers are exact: ties, frequent there, are ties.
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
    sample.mean = first - level + sum / LENGTH;
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
