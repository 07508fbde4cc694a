// The pixel of a work-item in a grid (nx, ny, images), and its image. Items beyond the last row or column end here: kernels that
// begin so have no barrier.
#define PIXEL_OF_ITEM(nx, ny) \
    const int x = get_global_id(0), y = get_global_id(1); \
    const size_t image = get_global_id(2); \
    if (x >= (nx) || y >= (ny)) \
        return;
