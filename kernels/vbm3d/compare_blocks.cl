// Compares blocks of PATCH x PATCH pixels with the neighbouring frame, at all displacements within a window. `block_motion` finds
// from it how the frame moves.
//
// Grid: (pitch of the costs, block rows + 2, 2 * pairs); VECTOR = 0: (NEAREST, the same pitch, (block rows + 2) * 2 * pairs), a
//   work-item takes the displacements of one block with the same dx. Pair p is the frames p and p + 1, first forward, then
//   backward in time.
// Constants: PATCH = 8, NEAREST (full width of the window), CELL (displacements that share the rows they load), VECTOR;
//   GROUP_X (blocks of a work-group, VECTOR = 0).
// Shapes: images (ring, pny, pitch), padded with FAR, `first` the slot of frame 0; links (pairs + 1, frames_before + 1 +
//   frames_after, 3), see common/frame_ring.h; costs (2 * pairs, blocks and displacements as in cost_steps), with blocks around
//   those of the frame. The cost is 0 where a block or its counterpart is not within the frame.
// Cost: 128 * NEAREST^2 operations a block.

#include "common/frame_ring.h"
#include "vbm3d/blocks.h"
#if VECTOR
#include "vbm3d/patch_columns.h"
#else
#include "vbm3d/strips.h"
#endif

#if !VECTOR
__attribute__((reqd_work_group_size(NEAREST, GROUP_X, 1)))
#endif
__kernel void compare_blocks(__global const float *images, int ring, int first, int pny, int pitch, int y0, int x0,
                             int ny, int nx, __global const float *links, int first_pair, int frames_before, int frames_after,
                             int shift_y, int shift_x, int block_rows, int cost_pitch, __global float *costs)
{
#if VECTOR
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    const int which = get_global_id(2);
#else
    const int d = get_global_id(0);
    const int column = get_global_id(1);
    const int row = get_global_id(2) % (block_rows + 2);
    const int which = get_global_id(2) / (block_rows + 2);
#endif
    if (column >= cost_pitch)
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
    const CostSteps steps = cost_steps(block_rows + 2, cost_pitch);
    __global float *out = costs + (which * (NEAREST * NEAREST) * (size_t)(block_rows + 2) * cost_pitch
                                   + row * steps.row + column * steps.block);

#if VECTOR
    REAL patch[PATCH], sums[NEAREST];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i)
        patch[i] = LOAD(here + i * pitch);
    for (int d = 0; d < NEAREST; ++d) {
        const bool beside = valid && inside(x + d - NEAREST / 2, nx);
        if (beside)
            COMPARE_COLUMN(sums, NEAREST, there - NEAREST / 2 * pitch + d - NEAREST / 2, pair.link.scale, pair.link.shift);
        for (int k = 0; k < NEAREST; ++k) {
            const bool within = beside && inside(y + k - NEAREST / 2, ny);
            out[k * steps.dy + d * steps.dx] = within ? lanes_sum(sums[k]) : 0.0f;
        }
    }
#else
    const bool beside = valid && inside(x + d - NEAREST / 2, nx);
    // The block in the grey levels of the other frame, so that these are read as they are.
    const float inverse = 1.0f / pair.link.scale;
    float patch[PATCH][PATCH], sums[CELL][1];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        #pragma unroll
        for (int j = 0; j < PATCH; ++j)
            patch[i][j] = (here[i * pitch + j] - pair.link.shift) * inverse;
    }
    #pragma unroll 1
    for (int top = 0; top < NEAREST; top += CELL) {
        COMPARE_STRIP(sums, CELL, 1, there + (top - NEAREST / 2) * pitch + d - NEAREST / 2, UNCHANGED);
        #pragma unroll
        for (int k = 0; k < CELL; ++k) {
            const bool within = beside && inside(y + top + k - NEAREST / 2, ny);
            if (top + k < NEAREST)
                out[(top + k) * steps.dy + d * steps.dx] = within ? sums[k][0] * (pair.link.scale * pair.link.scale) : 0.0f;
        }
    }
#endif
}
