// Divides the weighted sums that the groups leave and subtracts them: out = noisy - sigma * sum(w kappa r) / sum(w kappa), where r
// is the noise that a group removes from a cube, w its weight and kappa the Kaiser window.
//
// Reference: Maggioni et al. 2013, equation 8. The denominator is the weight of every cube, convolved with the Kaiser window.
// Grid: (x, y, volumes times nz) of the region written.
// Constants: CZ, CY, CX.
// Shapes: noisy, sums, weights, levels as in shrink_cubes; out (volumes, nz, ny, nx), the first one number
//   `first_out`, whose first voxel is (top_z, top, left) of the tile.

#include "bm4d/cubes.h"

__kernel void join_cubes(__global const float *noisy, int pnz, int pny, int pitch, int v0, int z0, int y0, int x0,
                         __global const int *sums, __global const int *weights, __global const float *levels, int slices,
                         int first_slice,
                         __global const float *kaiser, float scale, float units,
                         int top_z, int top, int left, int nz, int ny, int nx, int first_out, __global float *out)
{
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    const int z = get_global_id(2) % nz;
    const int volume = get_global_id(2) / nz;
    if (x >= nx || y >= ny)
        return;
    const size_t plane = (size_t)pny * pitch;
    const size_t at = ((size_t)volume * pnz + z0 + top_z + z) * plane + (size_t)(y0 + top + y) * pitch + x0 + left + x;
    float denominator = 0.0f;
    #pragma unroll
    for (int c = 0; c < CZ; ++c)
        #pragma unroll
        for (int i = 0; i < CY; ++i)
            #pragma unroll
            for (int j = 0; j < CX; ++j)
                denominator = fma(kaiser[(c * CY + i) * CX + j],
                                  convert_float(weights[at - c * plane - (size_t)(i * pitch) - j]), denominator);
    const float removed = denominator > 0.0f ? convert_float(sums[at]) * (units / scale) / denominator : 0.0f;
    const float sigma = levels[(volume + v0) * slices + first_slice + top_z + z];
    out[(((size_t)(volume + first_out) * nz + z) * ny + y) * nx + x] = noisy[(size_t)v0 * pnz * plane + at] - sigma * removed;
}
