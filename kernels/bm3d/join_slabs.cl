// Divides the weighted sums that the groups leave and subtracts them: out = noisy - sigma * sum(w kappa r) / sum(w kappa), where
// r is the noise that a group removes from a patch, w its weight and kappa the Kaiser window.
//
// Reference: Davy and Ehret 2020, section 4.4.3. The numerator is gathered from the slabs that cover the pixel. It is a sum of
//   whole numbers, so that neither the order nor the tiles matter. The denominator is the weight of every patch, convolved
//   with the Kaiser window, and needs no sums of its own.
// Grid: groups of (GROUP_X, GROUP_Y) work-items for as many pixels of the region written, each with PIXELS below each other;
//   frames in z.
// Constants: PATCH, STEP, WINDOW; GROUP_X, GROUP_Y, PIXELS; SLAB_X, SLAB_Y (references that a slab serves along each axis);
//   VIDEO = 1: sums and weights in rings, as shrink_shared writes them, instead of slabs.
// Shapes: slabs as shrink_shared writes them, `groups_y` times `groups_x` a frame; weights, noisy (padded layout); out (frames,
//   ny, nx), whose first pixel is (top, left) of the tile.

#include "common/patch_grid.h"

#define SLAB_WIDTH REACHED(SLAB_X)
#define SLAB_HEIGHT REACHED(SLAB_Y)
// Most slabs along an axis that may cover a pixel, with one that lies before its place on the grid.
#define SLABS_X ((SLAB_WIDTH + SLAB_X * STEP - 1) / (SLAB_X * STEP) + 1)
#define SLABS_Y ((SLAB_HEIGHT + SLAB_Y * STEP - 1) / (SLAB_Y * STEP) + 1)
#if VIDEO
#include "common/frame_ring.h"
#endif
#define AREA_X (GROUP_X + PATCH - 1)
#define AREA_Y (GROUP_Y * PIXELS + PATCH - 1)

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

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void join_slabs(__global const float *noisy, int pny, int pitch, int y0, int x0,
#if VIDEO
                int ring, int first_slot, int sum_ring, int first_sum, int frames, __global const int *slabs,
#else
                int first_y, int last_y, int first_x, int last_x, int groups_y, int groups_x,
                __global const int *slabs, __global const int *weights,
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
    const int y = get_global_id(1) * PIXELS;
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
    float taps[PATCH];
    #pragma unroll
    for (int j = 0; j < PATCH; ++j)
        taps[j] = kaiser[PATCH - 1 - j];
    // A patch that covers a pixel has its corner at most PATCH - 1 pixels before it.
    const int corner_y = y0 + top + (int)get_group_id(1) * (GROUP_Y * PIXELS) - PATCH + 1;
    const int corner_x = x0 + left + (int)get_group_id(0) * GROUP_X - PATCH + 1;
    for (int i = ly; i < AREA_Y; i += GROUP_Y) {
        const int cy = corner_y + i;
        for (int j = lx; j < AREA_X; j += GROUP_X) {
            const int cx = corner_x + j;
            const bool inside = cy >= 0 && cy < pny && cx >= 0 && cx < pitch;
            area[i][j] = inside ? convert_float(corners[(size_t)cy * pitch + cx]) : 0.0f;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = ly; i < AREA_Y; i += GROUP_Y) {
        float sum = 0.0f;
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            sum = fma(taps[j], area[i][lx + j], sum);
        rows[i][lx] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (x >= nx)
        return;
    const int tx = left + x;
#if !VIDEO
    const int column_stop = last_slab(tx, first_x, SLAB_X, groups_x);
    const int column_start = first_slab(tx, first_x, SLAB_X, SLAB_WIDTH);
    int inside[SLABS_X];  // place of the pixel's column in this slab and those after it
    #pragma unroll
    for (int k = 0; k < SLABS_X; ++k) {
        const int sx = tx - grid_position((column_start + k) * SLAB_X, first_x, last_x) + WINDOW / 2;
        const bool crossed = column_start + k <= column_stop && sx >= 0 && sx < SLAB_WIDTH;
        inside[k] = crossed ? k * (SLAB_HEIGHT * SLAB_WIDTH) + sx : -1;
    }
#endif
    #pragma unroll
    for (int p = 0; p < PIXELS; ++p) {
        if (y + p < ny) {
            const int ty = top + y + p;
            const size_t place = (size_t)(y0 + ty) * pitch + x0 + tx;
#if VIDEO
            const float numerator = convert_float(slabs[2 * sum_slot * plane + place]);
#else
            long total = 0;
            const int row_stop = last_slab(ty, first_y, SLAB_Y, groups_y);
            const int row_start = first_slab(ty, first_y, SLAB_Y, SLAB_HEIGHT);
            // As many loads at a time as there can be, since they take long.
            #pragma unroll 4
            for (int j = 0; j < SLABS_Y; ++j) {
                const int r = row_start + j;
                const int sy = ty - grid_position(r * SLAB_Y, first_y, last_y) + WINDOW / 2;
                const bool crossed = r <= row_stop && sy >= 0 && sy < SLAB_HEIGHT;
                const size_t slab = ((size_t)frame * groups_y + r) * groups_x + column_start;
                __global const int *line = slabs + slab * (SLAB_HEIGHT * SLAB_WIDTH) + sy * SLAB_WIDTH;
                #pragma unroll
                for (int k = 0; k < SLABS_X; ++k)
                    if (crossed && inside[k] >= 0)
                        total += line[inside[k]];
            }
            const float numerator = convert_float(total);
#endif
            float denominator = 0.0f;
            #pragma unroll
            for (int i = 0; i < PATCH; ++i)
                denominator = fma(taps[i], rows[ly * PIXELS + p + i][lx], denominator);
            const float level = noisy[padded_frame * plane + place];
            // A frame that is not filtered has no sums.
            const float removed = denominator > 0.0f ? numerator * (units / scale) / denominator : 0.0f;
            out[((size_t)frame * ny + y + p) * nx + x] = level - levels[frame] * removed;
        }
    }
}
