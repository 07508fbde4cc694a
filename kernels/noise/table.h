// A function of one variable, tabulated at even steps and interpolated linearly.

// Constant beyond either end. `count` is at least 2; `steps` is the number of steps per unit of x.
static inline float looked_up(__global const float *table, const int count, const float start, const float steps, const float x)
{
    const float place = clamp((x - start) * steps, 0.0f, (float)(count - 1));
    const int before = min((int)place, count - 2);
    const float low = table[before];
    return fma(place - (float)before, table[before + 1] - low, low);
}

// The same, continued along lines of slope `below` and `above` beyond its ends.
static inline float continued(__global const float *table, const int count, const float start, const float steps,
                              const float below, const float above, const float x)
{
    const float end = start + (float)(count - 1) / steps;
    const float beyond = x - clamp(x, start, end);
    return fma(beyond, beyond < 0.0f ? below : above, looked_up(table, count, start, steps, x));
}

// The same of the VALUES values of a work-item, of `count` from `first` on, in place.
static inline void continue_values(__global float *values, const ulong first, const ulong count, const float below,
                                   const float above, __global const float *table, const int entries, const float start,
                                   const float steps)
{
    const size_t begin = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, begin + VALUES);
    __global float *mine = values + first;
    for (size_t k = begin; k < stop; k++)
        mine[k] = continued(table, entries, start, steps, below, above, mine[k]);
}
