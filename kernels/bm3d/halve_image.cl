// Halves images: every pixel is the mean of 2 x 2.
//
// Reference: methods page of BM3D, "several scales".
// Grid: (nx, ny, frames) of the halved images, rounded up to whole work-groups.
// Constants: none.
// Shapes: given (frames, given_ny, given_nx), of which the first pixel used is (top, left); halved (frames, ny, nx). Of an odd
//   length the last pixel is its own mean.

__kernel void halve_image(__global const float *given, int given_ny, int given_nx, int top, int left, int ny, int nx,
                          __global float *halved)
{
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    if (x >= nx || y >= ny)
        return;
    const size_t frame = get_global_id(2);
    __global const float *image = given + frame * given_ny * given_nx;
    const size_t above = (size_t)(top + 2 * y) * given_nx;
    const size_t below = (size_t)min(top + 2 * y + 1, given_ny - 1) * given_nx;
    const int before = left + 2 * x;
    const int after = min(before + 1, given_nx - 1);
    const float sum = (image[above + before] + image[above + after]) + (image[below + before] + image[below + after]);
    halved[(frame * ny + y) * nx + x] = 0.25f * sum;
}
