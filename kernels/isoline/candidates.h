// The candidates that may replace a pixel: means along lines through it in 16 directions, and over a small window.
//
// Reference: methods page, "directions".
// Constants: LENGTH.
// Needs: isoline/segments.h.

#define AXES 16
#define WINDOW_MEAN 16

// Weight of the middle pixel in a line that is one pixel wide, and in the window.
#define LINE_MIDDLE (1.0f / (LENGTH + 1))
#define WINDOW_MIDDLE (36.0f / 256.0f)

static inline bool along_x_axis(int direction)
{
    return direction <= 4 || direction >= 12;
}

// Mean along a line of 2 * LENGTH + 1 pixels, weighted by a triangle, relative to its middle.
static inline float line_mean(__global const float *thick, int pitch, int direction)
{
    const float level = thick[0];
    float sum = 0.0f;
    #pragma unroll
    for (int k = 1; k <= LENGTH; ++k) {
        const int2 at = segment_pixel(direction, k);
        const int offset = at.y * pitch + at.x;
        sum = fma((LENGTH + 1 - k) / (float)((LENGTH + 1) * (LENGTH + 1)),
                  (thick[offset] - level) + (thick[-offset] - level), sum);
    }
    return sum;
}

// Mean of 5 x 5 pixels with binomial weights, relative to their middle.
static inline float window_mean(__global const float *pixels, int pitch)
{
    const float weights[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
    const float level = pixels[0];
    float sum = 0.0f;
    #pragma unroll
    for (int j = -2; j <= 2; ++j) {
        float row = 0.0f;
        #pragma unroll
        for (int i = -2; i <= 2; ++i)
            row = fma(weights[i + 2], pixels[j * pitch + i] - level, row);
        sum = fma(weights[j + 2], row, sum);
    }
    return sum;
}
