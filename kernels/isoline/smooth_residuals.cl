// Smooths maps by a triangle of 5 x 5: what a direction is chosen by is looked at around, or noise would choose it.
//
// Grid: (nx, ny, maps), the first pixel being (y0, x0) of the maps.
// Constants: none.
// Shapes: maps, smooth (maps, map_ny, pitch).

__kernel void smooth_residuals(__global const float *maps, int map_ny, int pitch, int y0, int x0, int ny, int nx,
                               __global float *smooth)
{
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    if (x >= nx || y >= ny)
        return;
    const float weights[5] = {1.0f / 9, 2.0f / 9, 3.0f / 9, 2.0f / 9, 1.0f / 9};
    const size_t here = ((size_t)get_global_id(2) * map_ny + y0 + y) * pitch + x0 + x;
    float sum = 0.0f;
    #pragma unroll
    for (int j = -2; j <= 2; ++j) {
        __global const float *row = maps + here + (long)j * pitch;
        const float of_row = fma(weights[0], row[-2] + row[2], fma(weights[1], row[-1] + row[1], weights[2] * row[0]));
        sum = fma(weights[j + 2], of_row, sum);
    }
    smooth[here] = sum;
}
