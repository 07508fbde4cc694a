// Statistics of patches of 8 x 8 pixels, from which noise is estimated: mean, energy at the low frequencies of the cosine
// transform, squared coefficients of the high ones, and share of clipped pixels.
//
// Reference: noise/patches/white.py (ranked by the low frequencies, read at the high ones); transforms as matrices.
// Grid: (patches of a row, rounded up to whole work-groups; rows of patches; planes), one work-item a patch.
// Constants: BITS = 8 or 16 and SIGNED, see common/level_type.h, or BITS = 32 for float; HIGHS, how many frequencies are high.
// Shapes: pixels (planes, rows, 8, nx): the rows of the planes that hold patches; a patch begins at every `across`-th pixel.
//   ends (planes, 2): levels at which values are clipped, NaN for none.
//   basis (8, 8): rows of the orthonormal cosine transform. roles (8, 8): -1 for low frequencies, else the number of a high one;
//   the first coefficient, the mean, is neither.
//   found (planes, rows, columns, HIGHS + 4): mean, energy, clipped share, 1 if all pixels are finite else 0, squares.
// Cost: 1024 multiplications and additions a patch.

#if BITS == 32
typedef float Level;
#else
#include "common/level_type.h"
#endif

#define WIDTH 8

__kernel void patch_statistics(__global const Level *pixels, const int nx, const int columns, const int across,
                               __global const float *ends, __constant float *basis, __constant int *roles, __global float *found)
{
    const int column = get_global_id(0), row = get_global_id(1), plane = get_global_id(2);
    if (column >= columns)
        return;
    const size_t band = (size_t)plane * get_global_size(1) + row;
    const size_t number = band * columns + column;
    __global const Level *patch = pixels + band * WIDTH * nx + (size_t)column * across;
    __global float *out = found + number * (HIGHS + 4);
    const float dark = ends[2 * plane], bright = ends[2 * plane + 1];

    // Differences from one pixel are small numbers, whatever the level of the patch.
    const float level = (float)patch[0];
    float rows[WIDTH][WIDTH]; // transformed along x
    float sum = 0.0f;
    int clipped = 0;
    for (int y = 0; y < WIDTH; ++y) {
        float line[WIDTH];
        for (int x = 0; x < WIDTH; ++x) {
            const float value = (float)patch[y * nx + x];
            clipped += value == dark || value == bright;
            line[x] = value - level;
            sum += line[x];
        }
        for (int k = 0; k < WIDTH; ++k) {
            float along = 0.0f;
            for (int x = 0; x < WIDTH; ++x)
                along = fma(basis[k * WIDTH + x], line[x], along);
            rows[y][k] = along;
        }
    }

    float energy = 0.0f;
    for (int j = 0; j < WIDTH; ++j)
        for (int k = 0; k < WIDTH; ++k) {
            float value = 0.0f;
            for (int y = 0; y < WIDTH; ++y)
                value = fma(basis[j * WIDTH + y], rows[y][k], value);
            const int role = roles[j * WIDTH + k];
            if (role >= 0)
                out[4 + role] = value * value;
            else if (j + k > 0)
                energy = fma(value, value, energy);
        }
    out[0] = level + sum / (WIDTH * WIDTH);
    out[1] = energy;
    out[2] = (float)clipped / (WIDTH * WIDTH);
    out[3] = isfinite(sum) ? 1.0f : 0.0f;
}
