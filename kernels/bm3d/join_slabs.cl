// Divides the weighted sums that the groups leave and subtracts them: out = noisy - sigma * sum(w kappa r) / sum(w kappa), where
// r is the noise that a group removes from a patch, w its weight and kappa the Kaiser window.
//
// Reference: Davy and Ehret 2020, section 4.4.3. The numerator is gathered from the slabs that cover the pixel. It is a sum of
//   whole numbers, so that neither the order nor the tiles matter. The denominator is the weight of every patch, convolved
//   with the Kaiser window, and needs no sums of its own.
// Grid: groups of (GROUP_X, GROUP_Y) pixels of the region written, frames in z.
// Constants: PATCH, STEP, WINDOW; GROUP_X, GROUP_Y; SLAB_X, SLAB_Y (references that a slab serves along each axis);
//   FLOAT_SUMS = 1: float sums, one a pixel, instead of slabs; VIDEO = 1: sums and weights in rings, as shrink_shared writes them.
// Shapes: slabs as shrink_shared writes them, `groups_y` times `groups_x` a frame, or with FLOAT_SUMS one sum a pixel of the
//   padded layout; weights, noisy (padded layout); out (frames, ny, nx), whose first pixel is (top, left) of the tile.

#include "common/patch_grid.h"

#define SLAB_WIDTH REACHED(SLAB_X)
#define SLAB_HEIGHT REACHED(SLAB_Y)
// Most slabs along an axis that may cover a pixel, with one that lies before its place on the grid.
#define SLABS_X ((SLAB_WIDTH + SLAB_X * STEP - 1) / (SLAB_X * STEP) + 1)
#define SLABS_Y ((SLAB_HEIGHT + SLAB_Y * STEP - 1) / (SLAB_Y * STEP) + 1)
#if FLOAT_SUMS
#define SUM float
#else
#define SUM int
#endif
#if VIDEO
#include "common/frame_ring.h"
#endif
#define AREA_X (GROUP_X + PATCH - 1)
#define AREA_Y (GROUP_Y + PATCH - 1)

#if !FLOAT_SUMS && !VIDEO
// First and last slab along an axis that may cover position `at` of the tile.
static inline int first_slab(int at, int first, int references, int length)
{
    const int reach = at - first + WINDOW / 2 - length;
    return reach < 0 ? 0 : reach / (references * STEP) + 1;
}

static inline int last_slab(int at, int first, int references, int slabs)
{
    // One more: where the last reference is not on the regular grid, the last slab lies before its place on that grid.
    return min((at - first + WINDOW / 2) / (references * STEP) + 1, slabs - 1);
}
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void join_slabs(__global const float *noisy, int pny, int pitch, int y0, int x0,
#if VIDEO
                int ring, int first_slot, int sum_ring, int first_sum, int frames, __global const SUM *slabs,
#else
                int first_y, int last_y, int first_x, int last_x, int groups_y, int groups_x,
                __global const SUM *slabs, __global const int *weights,
#endif
                __global const float *levels, __global const float *kaiser, float scale, float units,
                int top, int left, int ny, int nx, __global float *out)
{
    __local float area[AREA_Y][AREA_X];
    __local float rows[AREA_Y][GROUP_X];

    const int lx = get_local_id(0);
    const int ly = get_local_id(1);
    const int frame = get_global_id(2);
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    const size_t plane = (size_t)pny * pitch;

#if VIDEO
    const int channel = frame / frames;
    const size_t sum_slot = (size_t)channel * sum_ring + ring_slot(first_sum, frame % frames, sum_ring);
    __global const int *corners = slabs + (2 * sum_slot + 1) * plane;
    const size_t padded_frame = (size_t)channel * ring + ring_slot(first_slot, frame % frames, ring);
#else
    __global const int *corners = weights + frame * plane;
    const size_t padded_frame = frame;
#endif
    // A patch that covers a pixel has its corner at most PATCH - 1 pixels before it.
    const int corner_y = y0 + top + (int)get_group_id(1) * GROUP_Y - PATCH + 1;
    const int corner_x = x0 + left + (int)get_group_id(0) * GROUP_X - PATCH + 1;
    for (int k = ly * GROUP_X + lx; k < AREA_Y * AREA_X; k += GROUP_X * GROUP_Y) {
        const int cy = corner_y + k / AREA_X;
        const int cx = corner_x + k % AREA_X;
        const bool inside = cy >= 0 && cy < pny && cx >= 0 && cx < pitch;
        area[k / AREA_X][k % AREA_X] = inside ? convert_float(corners[(size_t)cy * pitch + cx]) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = ly; k < AREA_Y; k += GROUP_Y) {
        float sum = 0.0f;
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            sum = fma(kaiser[PATCH - 1 - j], area[k][lx + j], sum);
        rows[k][lx] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (x >= nx || y >= ny)
        return;
    float denominator = 0.0f;
    #pragma unroll
    for (int i = 0; i < PATCH; ++i)
        denominator = fma(kaiser[PATCH - 1 - i], rows[ly + i][lx], denominator);

    const int ty = top + y;
    const int tx = left + x;
#if VIDEO
    const float numerator = convert_float(slabs[2 * sum_slot * plane + (size_t)(y0 + ty) * pitch + x0 + tx]);
#elif FLOAT_SUMS
    const float numerator = slabs[frame * plane + (size_t)(y0 + ty) * pitch + x0 + tx];
#else
    long total = 0;
    const int row_stop = last_slab(ty, first_y, SLAB_Y, groups_y);
    const int column_stop = last_slab(tx, first_x, SLAB_X, groups_x);
    const int row_start = first_slab(ty, first_y, SLAB_Y, SLAB_HEIGHT);
    const int column_start = first_slab(tx, first_x, SLAB_X, SLAB_WIDTH);
    int inside[SLABS_X];  // the column of a slab in which the pixel lies
    #pragma unroll
    for (int k = 0; k < SLABS_X; ++k) {
        const int sx = tx - grid_position((column_start + k) * SLAB_X, first_x, last_x) + WINDOW / 2;
        inside[k] = column_start + k <= column_stop && sx < SLAB_WIDTH ? sx : -1;
    }
    // As many loads at a time as there can be, since they take long.
    #pragma unroll 4
    for (int j = 0; j < SLABS_Y; ++j) {
        const int r = row_start + j;
        const int sy = ty - grid_position(r * SLAB_Y, first_y, last_y) + WINDOW / 2;
        const bool crossed = r <= row_stop && sy >= 0 && sy < SLAB_HEIGHT;
        const size_t slab = ((size_t)frame * groups_y + r) * groups_x + column_start;
        __global const SUM *line = slabs + slab * (SLAB_HEIGHT * SLAB_WIDTH) + sy * SLAB_WIDTH;
        #pragma unroll
        for (int k = 0; k < SLABS_X; ++k)
            if (crossed && inside[k] >= 0)
                total += line[k * (SLAB_HEIGHT * SLAB_WIDTH) + inside[k]];
    }
    const float numerator = convert_float(total);
#endif
    const float level = noisy[padded_frame * plane + (size_t)(y0 + ty) * pitch + x0 + tx];
    // A frame that is not filtered has no sums.
    const float removed = denominator > 0.0f ? numerator * (units / scale) / denominator : 0.0f;
    out[((size_t)frame * ny + y) * nx + x] = level - levels[frame] * removed;
}
