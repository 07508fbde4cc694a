// Cosine coefficients of patches of 8 x 8 pixels, from which noise is estimated, and what is known of each patch: its mean, the
// mean as its high frequencies see it, the share of clipped pixels, and energies over sets of frequencies.
//
// Reference: tests/reference/patch_coefficients.py. The coefficients stay on the device, where noise/patch_sums adds them up.
// Grid: (patches / PER, rounded up to whole work-groups), a work-item for PER patches in a row.
// Constants: BITS = 8 or 16 and SIGNED, see common/level_type.h, or BITS = 32 for float; PER, 1 on a GPU.
// Shapes: pixels (planes, size): patch (row, column) of a plane begins at row * apart + column * across; its rows are nx apart.
//   A plane has `each` patches, and the launch `count`; the first one is patch `first` of all `number` of kept and told.
//   ends (planes, 2): levels at which the values of each plane are clipped, NaN for none.
//   tables (3 + SETS, 8, 8): the cosine transform (position, frequency), so that a row holds all frequencies; the same
//   transposed; then for each of the SETS of frequencies which belong to it, 1 or 0; then how coefficients add to the mean.
//   kept (number, 8, 8): coefficients, frequency along y, along x.
//   told (3 + SETS, number): mean, seen mean, clipped share, energies; the mean of a patch with pixels that are not finite is
//   NaN.
// Cost: 1024 multiplications and additions a patch for the transform, 320 for the rest.

#if BITS == 32
typedef float Level;
#else
#include "common/level_type.h"
#endif
#include "common/float8_rows.h"

#define WIDTH 8
#define SETS 4

__kernel void patch_coefficients(__global const Level *pixels, const int size, const int nx, const int columns,
                                 const int across, const int apart, const int each, const int count, const int first,
                                 const int number, __global const float *ends, __global const float *tables,
                                 __global float *kept, __global float *told)
{
    for (int n = 0; n < PER; ++n) {
        const int patch = (int)get_global_id(0) * PER + n;
        if (patch >= count)
            return;
        const int plane = patch / each, place = patch % each;
        __global const Level *source = pixels + (size_t)plane * size + (size_t)(place / columns) * apart + place % columns * across;

        // Differences from one pixel are small numbers, whatever the level of the patch.
        const float level = (float)source[0];
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

        float8 energies[SETS], sight = (float8)(0.0f);
        for (int s = 0; s < SETS; ++s)
            energies[s] = (float8)(0.0f);
        __global const float *sets = tables + 2 * WIDTH * WIDTH;
        __global float *out = kept + (size_t)(first + patch) * WIDTH * WIDTH;
        for (int j = 0; j < WIDTH; ++j) {
            float8 value = (float8)(0.0f);
            for (int y = 0; y < WIDTH; ++y)
                value = fma((float8)(tables[WIDTH * WIDTH + j * WIDTH + y]), rows[y], value);
            vstore8(value, j, out);
            sight = fma(vload8(SETS * WIDTH + j, sets), value, sight);
            value *= value;
            for (int s = 0; s < SETS; ++s)
                energies[s] = fma(vload8(s * WIDTH + j, sets), value, energies[s]);
        }
        const float total = lanes_sum(sum), mean = level + total / (WIDTH * WIDTH);
        told += first + patch;
        told[0] = isfinite(total) ? mean : NAN;
        told[number] = mean + lanes_sum(sight);
        told[2 * (size_t)number] = lanes_sum(clipped) / (WIDTH * WIDTH);
        for (int s = 0; s < SETS; ++s)
            told[(3 + s) * (size_t)number] = lanes_sum(energies[s]);
        told -= first + patch;
    }
}
