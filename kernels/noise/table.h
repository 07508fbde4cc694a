// A function of one variable, tabulated at even steps and interpolated linearly.

#include "noise/values.h"

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
