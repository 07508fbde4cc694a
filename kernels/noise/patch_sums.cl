// Sums over lists of patches of their squared cosine coefficients.
//
// Reference: span_sums of noise/patches/coefficients.py.
// Grid: (8 frequencies along y; chunks of the lists, rounded up to whole work-groups), a work-item for the eight along x.
// Constants: none.
// Shapes: coefficients (patch, 8, 8). list: where each chunk begins, where it ends (chunks each), the patches (number), and if
//   `weighted` what each square counts (number, the bits of floats). sums (chunks, 8, 8).
// Cost: reads each coefficient of a list once.

__kernel void patch_sums(__global const float *coefficients, __global const int *list, const int chunks, const int number,
                         const int weighted, __global float *sums)
{
    const int j = get_global_id(0), chunk = get_global_id(1);
    if (chunk >= chunks)
        return;
    __global const int *patches = list + 2 * chunks;
    const int end = list[chunks + chunk];
    float8 sum = (float8)(0.0f);
    for (int i = list[chunk]; i < end; ++i) {
        const float8 value = vload8(j, coefficients + (size_t)patches[i] * 64);
        const float weight = weighted ? as_float(patches[number + i]) : 1.0f;
        sum = fma(value * value, (float8)(weight), sum);
    }
    vstore8(sum, (size_t)chunk * 8 + j, sums);
}
