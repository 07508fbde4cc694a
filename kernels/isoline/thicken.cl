// Averages every pixel with the two beside it: those above and below for lines that run along x, left and right for the others.
//
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: none.
// Shapes: padded, along_x, along_y (images, pny, pitch). `share` is that of each neighbour.

__kernel void thicken(__global const float *padded, int pny, int pitch, int y0, int x0, int ny, int nx, float share,
                      __global float *along_x, __global float *along_y)
{
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    if (x >= nx || y >= ny)
        return;
    const size_t here = ((size_t)get_global_id(2) * pny + y0 + y) * pitch + x0 + x;
    const float level = padded[here];
    // Relative to the pixel, so that a constant image stays as it is.
    along_x[here] = fma(share, (padded[here - pitch] - level) + (padded[here + pitch] - level), level);
    along_y[here] = fma(share, (padded[here - 1] - level) + (padded[here + 1] - level), level);
}
