// Divides the weighted sums that the groups leave and adds them to the estimate; with CHAIN, also makes what is combined next.
//
// Reference: methods page, "ridge combinations". The denominators are the weights of all patches that cover a pixel.
// Grid: (nx, ny, volumes * nz) of the region written, rounded up.
// Constants: PZ, PY, PX, CHAIN.
// Shapes: estimate, begun, sums, weights, levels as in combine_groups; the region written, (made_z, made_y, made_x), begins at
//   (top_z, top, left); out (volumes, out_nz, out_ny, out_nx), whose first pixel is (out_z, out_y, out_x) of the estimate. Estimate and
//   begun are changed in place where `out` is the estimate.

__kernel void join_combined(__global float *estimate, __global float *begun, int nz, int ny, int nx,
                            __global const int *sums, __global const int *weights,
                            __global const float *levels, int slices, int first_slice, float scale, float units,
                            int top_z, int top, int left, int made_z, int made_y, int made_x,
                            __global float *out, int out_z, int out_y, int out_x, int out_nz, int out_ny, int out_nx)
{
    if (get_global_id(0) >= (size_t)made_x || get_global_id(1) >= (size_t)made_y)
        return;
    const int x = left + get_global_id(0);
    const int y = top + get_global_id(1);
    const int z = top_z + get_global_id(2) % made_z;
    const int volume = get_global_id(2) / made_z;
    const size_t volume_pixels = (size_t)nz * ny * nx;
    const size_t in_volume = ((size_t)z * ny + y) * nx + x;
    const size_t at = volume * volume_pixels + in_volume;
    const size_t sums_at = volume * volume_pixels * (1 + KEPT) + in_volume;
    float denominator = 0.0f, partly = 0.0f;
    for (int c = 0; c <= min(z, PZ - 1); ++c)
        for (int i = 0; i <= min(y, PY - 1); ++i)
            for (int j = 0; j <= min(x, PX - 1); ++j) {
                const size_t corner = sums_at - ((size_t)c * ny + i) * nx - j;
                denominator += convert_float(weights[corner]);
#if KEPT
                partly += convert_float(weights[corner + volume_pixels]);
#endif
            }
    const float level = levels[volume * slices + first_slice + z];
    const float over = denominator > 0.0f ? 1.0f / denominator : 0.0f;
    const float each = level * units / scale * over;
    const float old = estimate[at];
    const float made = old + each * convert_float(sums[sums_at]);
    out[(((size_t)volume * out_nz + z - out_z) * out_ny + y - out_y) * out_nx + x - out_x] = made;
#if KEPT
    begun[at] = made + partly * over * (begun[at] - old) - each * convert_float(sums[sums_at + volume_pixels]);
#endif
}
