// Cosine coefficients of patches of 8 x 8 pixels, from which noise is estimated, and what is known of each patch: its mean, the
// mean as its high frequencies see it, energies over sets of frequencies, and the share of clipped pixels.
//
// Reference: noise/patches/coefficients.py and noise/patches/spectra.py; transforms as matrices. The coefficients stay on the
//   device, where noise/patch_sums adds up their squares; or only the squares of those at high frequencies are kept.
// Grid: (patches / PER, rounded up to whole work-groups), a work-item for PER patches in a row.
// Constants: BITS = 8 or 16 and SIGNED, see common/level_type.h, or BITS = 32 for float; PER, 1 on a GPU; HIGHS, how many
//   squares are kept of a patch, 0 for all coefficients.
// Shapes: pixels: patch (row, column) begins at row * apart + column * across; its rows are nx apart.
//   ends (planes, 2): levels at which values are clipped, NaN for none, of planes of `each` patches.
//   tables (4 + SETS, 8, 8): the cosine transform (position, frequency), so that a row holds all frequencies; the same
//   transposed; then for each of the SETS of frequencies which belong to it, 1 or 0; then how coefficients add to the mean; then
//   at each high frequency its number, elsewhere -1.
//   kept (patch, 8, 8): coefficients, frequency along y, along x; or (patch, HIGHS): squares.
//   told (3 + SETS, number): mean, seen mean, clipped share, energies; the mean of a patch with pixels that are not finite is
//   NaN. With HIGHS only the first energy is told, (4, number). The first patch is patch `first` of kept, told and planes.
// Cost: 1024 multiplications and additions a patch for the transform, 384 for the rest.

#if BITS == 32
typedef float Level;
#else
#include "common/level_type.h"
#endif

#define WIDTH 8
#define SETS 5
#define TOLD_SETS (HIGHS ? 1 : SETS)

static inline float sum_of(const float8 v)
{
    const float4 half_sum = v.lo + v.hi;
    const float2 quarter = half_sum.lo + half_sum.hi;
    return quarter.x + quarter.y;
}

__kernel void patch_coefficients(__global const Level *pixels, const int nx, const int columns, const int count,
                                 const int across, const int apart, __global const float *ends, const int each,
                                 __global const float *tables, __global float *kept, __global float *told, const int first,
                                 const int number)
{
    for (int n = 0; n < PER; ++n) {
        const int patch = (int)get_global_id(0) * PER + n;
        if (patch >= count)
            return;
        __global const Level *source = pixels + (size_t)(patch / columns) * apart + (size_t)(patch % columns) * across;

        // Differences from one pixel are small numbers, whatever the level of the patch.
        const float level = (float)source[0];
        const int plane = (first + patch) / each;
        const float dark = ends[2 * plane], bright = ends[2 * plane + 1];
        float8 rows[WIDTH]; // transformed along x
        float8 sum = (float8)(0.0f), clipped = (float8)(0.0f);
        for (int y = 0; y < WIDTH; ++y) {
            const float8 values = convert_float8(vload8(0, source + (size_t)y * nx));
            const float8 distance = values - level;
            clipped += select((float8)(0.0f), (float8)(1.0f), values == dark || values == bright);
            sum += distance;
            float8 along = vload8(0, tables) * distance.s0;
            along = fma(vload8(1, tables), (float8)(distance.s1), along);
            along = fma(vload8(2, tables), (float8)(distance.s2), along);
            along = fma(vload8(3, tables), (float8)(distance.s3), along);
            along = fma(vload8(4, tables), (float8)(distance.s4), along);
            along = fma(vload8(5, tables), (float8)(distance.s5), along);
            along = fma(vload8(6, tables), (float8)(distance.s6), along);
            along = fma(vload8(7, tables), (float8)(distance.s7), along);
            rows[y] = along;
        }

        float8 energies[TOLD_SETS], sight = (float8)(0.0f);
        for (int s = 0; s < TOLD_SETS; ++s)
            energies[s] = (float8)(0.0f);
        __global const float *sets = tables + 2 * WIDTH * WIDTH;
        __global float *out = kept + (size_t)(first + patch) * (HIGHS ? HIGHS : WIDTH * WIDTH);
        for (int j = 0; j < WIDTH; ++j) {
            float8 value = (float8)(0.0f);
            for (int y = 0; y < WIDTH; ++y)
                value = fma((float8)(tables[WIDTH * WIDTH + j * WIDTH + y]), rows[y], value);
            if (!HIGHS)
                vstore8(value, j, out);
            sight = fma(vload8(SETS * WIDTH + j, sets), value, sight);
            value *= value;
#if HIGHS
            float squares[WIDTH];
            vstore8(value, 0, squares);
            for (int k = 0; k < WIDTH; ++k) {
                const int role = (int)sets[(SETS + 1) * WIDTH * WIDTH + j * WIDTH + k];
                if (role >= 0)
                    out[role] = squares[k];
            }
#endif
            for (int s = 0; s < TOLD_SETS; ++s)
                energies[s] = fma(vload8(s * WIDTH + j, sets), value, energies[s]);
        }
        const float total = sum_of(sum), mean = level + total / (WIDTH * WIDTH);
        told += first + patch;
        told[0] = isfinite(total) ? mean : NAN;
        told[number] = mean + sum_of(sight);
        told[2 * (size_t)number] = sum_of(clipped) / (WIDTH * WIDTH);
        for (int s = 0; s < TOLD_SETS; ++s)
            told[(3 + s) * (size_t)number] = sum_of(energies[s]);
        told -= first + patch;
    }
}
