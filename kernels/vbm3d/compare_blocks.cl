// Compares blocks of PATCH x PATCH pixels with the neighbouring frame, at all displacements within a window. `block_motion` finds
// from it how the frame moves.
//
// Grid: (pitch of the costs, block rows + 2, 2 * pairs), VECTOR = 0: times the strips of CELL * CELL displacements. Pair p is the
//   frames p and p + 1, first forward, then backward in time.
// Constants: PATCH = 8, NEAREST (full width of the window), CELL, VECTOR.
// Shapes: images (ring, pny, pitch), padded with FAR, `first` the slot of frame 0; links (pairs + 1, frames_before + 1 +
//   frames_after, 3), see common/frame_ring.h; costs (2 * pairs, NEAREST, NEAREST, block rows + 2, cost_pitch), with blocks
//   around those of the frame. The cost is 0 where a block or its counterpart is not within the frame.
// Cost: 128 * NEAREST^2 operations a block.

#include "common/frame_ring.h"
#include "vbm3d/blocks.h"
#if VECTOR
#include "vbm3d/patch_columns.h"
#else
#include "vbm3d/strips.h"
#endif

__kernel void compare_blocks(__global const float *images, int ring, int first, int pny, int pitch, int y0, int x0,
                             int ny, int nx, __global const float *links, int first_pair, int frames_before, int frames_after,
                             int shift_y, int shift_x, int block_rows, int cost_pitch, __global float *costs)
{
    const int column = get_global_id(0);
    const int row = get_global_id(1);
#if VECTOR
    const int which = get_global_id(2);
#else
    const int strips = CELLS(NEAREST, 1, CELL);
    const int which = get_global_id(2) / (strips * strips);
    const int strip = get_global_id(2) % (strips * strips);
#endif
    if (column >= cost_pitch || row >= block_rows + 2)
        return;
    const BlockPair pair = block_pair(links, first_pair, which, frames_before, frames_after);
    if (pair.link.noise <= 0.0f)
        return;  // block_motion reads no cost
    const size_t plane = (size_t)pny * pitch;
    const int slot = ring_slot(first, pair.own, ring);
    const int y = (row - 1) * PATCH - shift_y;
    const int x = (column - 1) * PATCH - shift_x;
    const bool valid = inside(y, ny) && inside(x, nx);
    __global const float *here = images + slot * plane + (size_t)(y0 + (valid ? y : 0)) * pitch + x0 + (valid ? x : 0);
    __global const float *there = here + (long)(ring_slot(slot, pair.dt, ring) - slot) * (long)plane;
    const size_t blocks = (size_t)(block_rows + 2) * cost_pitch;
    __global float *out = costs + (size_t)which * (NEAREST * NEAREST) * blocks + (size_t)row * cost_pitch + column;

#if VECTOR
    REAL patch[PATCH], sums[NEAREST];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i)
        patch[i] = LOAD(here + i * pitch);
    for (int d = 0; d < NEAREST; ++d) {
        const bool beside = valid && inside(x + d - NEAREST / 2, nx);
        if (beside)
            COMPARE_COLUMN(sums, NEAREST, 1, there - NEAREST / 2 * pitch + d - NEAREST / 2, pair.link.scale, pair.link.shift);
        for (int k = 0; k < NEAREST; ++k) {
            const bool within = beside && inside(y + k - NEAREST / 2, ny);
            out[(size_t)(k * NEAREST + d) * blocks] = within ? lanes_sum(sums[k]) : 0.0f;
        }
    }
#else
    const int top = strip / strips * CELL;
    const int left = strip % strips * CELL;
    float patch[PATCH][PATCH], sums[CELL][CELL];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            patch[i][j] = here[i * pitch + j];
    }
    COMPARE_STRIP(sums, CELL, 1, there + (top - NEAREST / 2) * pitch + left - NEAREST / 2, pair.link.scale, pair.link.shift);
    #pragma unroll
    for (int k = 0; k < CELL; ++k) {
        #pragma unroll
        for (int d = 0; d < CELL; ++d) {
            const bool within = valid && inside(y + top + k - NEAREST / 2, ny) && inside(x + left + d - NEAREST / 2, nx);
            if (top + k < NEAREST && left + d < NEAREST)
                out[(size_t)((top + k) * NEAREST + left + d) * blocks] = within ? sums[k][d] : 0.0f;
        }
    }
#endif
}
