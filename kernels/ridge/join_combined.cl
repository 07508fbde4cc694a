// Divides the weighted sums that the groups leave and adds them to the estimate; with KEPT, also makes what is combined next.
//
// Reference: methods page, "ridge combinations". The denominators are the weights of all patches that cover a pixel.
// Grid: (made_x, made_y, volumes * made_z) of the region written, rounded up; with VIDEO (made_x, made_y, channels * frames).
// Constants: PZ, PY, PX; KEPT, VIDEO.
// Shapes: estimate, begun, sums, weights, levels as in groups.h, with VIDEO levels (channels, frames); the region written,
//   (made_z, made_y, made_x), begins at (top_z, top, left); out and kept (volumes, out_nz, out_ny, out_nx), whose first pixel is
//   (out_z, out_y, out_x) of the estimate. They may be the estimate and begun.

#define KINDS (1 + KEPT)
#if VIDEO
#include "common/frame_ring.h"
#define PLACE_ARGUMENTS int ny, int nx, int ring, int first_slot, int sum_ring, int first_sum, int frames
#else
#define PLACE_ARGUMENTS int nz, int ny, int nx, __global const int *weights, int slices, int first_slice
#endif

__kernel void join_combined(__global const float *estimate, __global const float *begun, __global const int *sums,
                            __global const float *levels, PLACE_ARGUMENTS, float scale, float units,
                            int top_z, int top, int left, int made_z, int made_y, int made_x,
                            __global float *out, __global float *kept,
                            int out_z, int out_y, int out_x, int out_nz, int out_ny, int out_nx)
{
    if (get_global_id(0) >= (size_t)made_x || get_global_id(1) >= (size_t)made_y)
        return;
    const int x = left + get_global_id(0);
    const int y = top + get_global_id(1);
    const int z = top_z + get_global_id(2) % made_z;
    const int image = get_global_id(2) / made_z;
#if VIDEO
    const size_t stride = (size_t)ny * nx, in_image = (size_t)y * nx + x;
    const int channel = image / frames;
    const size_t at = ((size_t)channel * ring + ring_slot(first_slot, image % frames, ring)) * stride + in_image;
    const size_t sums_at = ((size_t)channel * sum_ring + ring_slot(first_sum, image % frames, sum_ring)) * (2 * KINDS) * stride
        + in_image;
    __global const int *corners = sums + KINDS * stride;
    const float level = levels[image];
#else
    const size_t stride = (size_t)nz * ny * nx, in_image = ((size_t)z * ny + y) * nx + x;
    const size_t at = image * stride + in_image;
    const size_t sums_at = image * KINDS * stride + in_image;
    __global const int *corners = weights;
    const float level = levels[image * slices + first_slice + z];
#endif
    float denominator = 0.0f, partly = 0.0f;
    for (int c = 0; c <= min(z, PZ - 1); ++c)
        for (int i = 0; i <= min(y, PY - 1); ++i)
            for (int j = 0; j <= min(x, PX - 1); ++j) {
                const size_t corner = sums_at - ((size_t)c * ny + i) * nx - j;
                denominator += convert_float(corners[corner]);
                if (KEPT)
                    partly += convert_float(corners[corner + stride]);
            }
    const float over = denominator > 0.0f ? 1.0f / denominator : 0.0f;
    const float each = level * units / scale * over;
    const float old = estimate[at];
    const float made = fma(each, convert_float(sums[sums_at]), old);
    const size_t to = (((size_t)image * out_nz + z - out_z) * out_ny + y - out_y) * out_nx + x - out_x;
    if (KEPT)
        kept[to] = made + partly * over * (begun[at] - old) - each * convert_float(sums[sums_at + stride]);
    out[to] = made;
}
