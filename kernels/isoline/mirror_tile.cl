// Copies a tile into the middle of a larger one; what lies beyond the image is its mirror image, the last pixel not repeated.
//
// Reference: methods page, "borders".
// Grid: (pitch, pny, images) of the larger one.
// Constants: none.
// Shapes: tile (images, tile_ny, tile_nx), whose first pixel is (tile_y, tile_x) of images of image_ny times image_nx pixels;
//   padded (images, pny, pitch), whose first pixel is (y0, x0) of them.

// Period 2 (n - 1); an image one pixel wide is the same everywhere.
static inline int mirrored(int at, int n)
{
    const int period = max(2 * (n - 1), 1);
    const int inside = ((at % period) + period) % period;
    return min(inside, period - inside) * (n > 1);
}

__kernel void mirror_tile(__global const float *tile, int tile_ny, int tile_nx, int tile_y, int tile_x,
                          int image_ny, int image_nx, int y0, int x0, int pny, int pnx, int pitch,
                          __global float *padded)
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    const int image = get_global_id(2);
    if (px >= pitch || py >= pny)
        return;
    // The end of a row that is there for alignment alone repeats a pixel that is there.
    const int y = mirrored(y0 + py, image_ny) - tile_y;
    const int x = mirrored(x0 + min(px, pnx - 1), image_nx) - tile_x;
    padded[((size_t)image * pny + py) * pitch + px] = tile[((size_t)image * tile_ny + y) * tile_nx + x];
}
