// A function of one variable, tabulated at even steps and interpolated linearly.

// Constant beyond either end. `count` is at least 2; `steps` is the number of steps per unit of x.
static inline float looked_up(__global const float *table, const int count, const float start, const float steps, const float x)
{
    const float place = clamp((x - start) * steps, 0.0f, (float)(count - 1));
    const int before = min((int)place, count - 2);
    const float low = table[before];
    return fma(place - (float)before, table[before + 1] - low, low);
}
