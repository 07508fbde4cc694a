// A function of one variable as values at even steps; in between lies a straight line.

// Nearest end beyond the ends. `count` is at least 2.
static inline float looked_up(__global const float *table, const int count, const float start, const float steps, const float x)
{
    const float place = clamp((x - start) * steps, 0.0f, (float)(count - 1));
    const int before = min((int)place, count - 2);
    const float low = table[before];
    return fma(place - (float)before, table[before + 1] - low, low);
}
