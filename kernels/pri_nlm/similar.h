// The units in which a guide is compared: 2 to the power of minus a squared difference is a weight.

// sqrt(log2(e)) / (2 h); bounded, so that equal values have a weight of 1 even without noise.
static inline float guide_scale(float h)
{
    return fmin(0.600561204f / h, 1e15f);
}
