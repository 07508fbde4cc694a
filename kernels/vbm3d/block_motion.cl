// Finds how every block of a frame moves to the next frame and to the previous one: the displacement at which the block and
// those around it, 3 x 3 together, differ least. Larger displacements need a better match.
//
// Grid: VECTOR = 1, for CPUs: (block columns / 8, block rows, 2 * pairs), a work-item takes eight blocks; VECTOR = 0:
//   (NEAREST, block columns, 2 * pairs * block rows), a work-item takes the displacements of one block with the same dx.
// Constants: PATCH = 8, NEAREST (full width of the window), VECTOR; GROUP_X (blocks of a work-group, VECTOR = 0).
// Shapes: costs, pairs and links as in compare_blocks; motions (ring, 2, block rows, block columns), (dy, dx) forward and
//   backward in time, `first` the slot of frame 0. Blocks of frames that may not be compared do not move.
// Cost: 9 * NEAREST^2 additions a block.

#include "common/frame_ring.h"
#include "common/quotient.h"
#include "vbm3d/blocks.h"
#if VECTOR
#include "common/float8_rows.h"
typedef float8 REAL;
typedef int8 WHOLE;
#define LANES 8
#define LOAD(pointer) ROW(pointer)
#define SINGLE(vector, lane) (((float *)&(vector))[lane])
#else
typedef float REAL;
typedef int WHOLE;
#define LANES 1
#define LOAD(pointer) (*(pointer))
#define SINGLE(value, lane) value
#endif

// Preference for short displacements: mean squared difference, in sigma squared, that a pixel of displacement must gain.
#define LEAN 0.01f

// How many of three neighbouring blocks, the middle one at `at`, lie in the frame here and when moved by d.
static inline int blocks_inside(int at, int length, int d)
{
    int count = 0;
    #pragma unroll
    for (int k = -1; k <= 1; ++k)
        count += inside(at + k * PATCH, length) && inside(at + k * PATCH + d, length);
    return count;
}

#if !VECTOR
__attribute__((reqd_work_group_size(NEAREST, GROUP_X, 1)))
#endif
__kernel void block_motion(__global const float *costs, int cost_pitch, int ring, int first, int ny, int nx,
                           __global const float *links, int first_pair, int frames_before, int frames_after,
                           int shift_y, int shift_x, int block_rows, int block_columns, __global short2 *motions)
{
#if VECTOR
    const int row = get_global_id(1);
    const int which = get_global_id(2);
#else
    __local float offered[GROUP_X][NEAREST];
    __local int offered_y[GROUP_X][NEAREST];
    const int row = get_global_id(2) % block_rows;
    const int which = get_global_id(2) / block_rows;
#endif
    const int column = min((int)get_global_id(VECTOR ? 0 : 1) * LANES, block_columns - 1);
    const BlockPair pair = block_pair(links, first_pair, which, frames_before, frames_after);
    const int slot = ring_slot(first, pair.own, ring);
    const bool alike = pair.link.noise > 0.0f;
    const float lean = LEAN * PATCH * PATCH * pair.link.noise * pair.link.noise;
    const CostSteps steps = cost_steps(block_rows + 2, cost_pitch);
    __global const float *around = costs + (which * (NEAREST * NEAREST) * (size_t)(block_rows + 2) * cost_pitch
                                            + row * steps.row + column * steps.block);
    __global short2 *out = motions + ((size_t)(2 * slot + (which & 1)) * block_rows + row) * block_columns + column;
    const int y = row * PATCH - shift_y;
    const int x = column * PATCH - shift_x;

    WHOLE best_y = (WHOLE)0, best_x = (WHOLE)0;
    REAL least = (REAL)INFINITY, still = (REAL)0.0f;
    for (int lane = 0; lane < LANES; ++lane)
        SINGLE(still, lane) = blocks_inside(y, ny, 0) * blocks_inside(x + lane * PATCH, nx, 0);
#if VECTOR
    for (int d = 0; d < NEAREST && alike; ++d) {
#else
    const int d = get_local_id(0);
    if (alike) {
#endif
        const int dx = d - NEAREST / 2;
        REAL across = (REAL)0.0f;
        for (int lane = 0; lane < LANES; ++lane)
            SINGLE(across, lane) = blocks_inside(x + lane * PATCH, nx, dx);
#if !VECTOR
        #pragma unroll 5
#endif
        for (int k = 0; k < NEAREST; ++k) {
            const int dy = k - NEAREST / 2;
            __global const float *cost = around + k * steps.dy + d * steps.dx;
            REAL sum = (REAL)0.0f;
            #pragma unroll
            for (int i = 0; i < 3; ++i)
                sum += LOAD(cost + i * steps.row) + LOAD(cost + i * steps.row + steps.block)
                    + LOAD(cost + i * steps.row + 2 * steps.block);
            const REAL count = across * (float)blocks_inside(y, ny, dy);
            const REAL mean = QUOTIENT(sum, fmax(count, (REAL)1.0f)) + lean * (float)(abs(dy) + abs(dx));
            // A third of those that could be compared must be, lest few blocks at a border decide.
            const WHOLE better = count > 0.0f && 3.0f * count >= still && mean < least;
            least = select(least, mean, better);
            best_y = select(best_y, (WHOLE)dy, better);
            best_x = select(best_x, (WHOLE)dx, better);
        }
    }
#if VECTOR
    for (int lane = 0; lane < LANES && column + lane < block_columns; ++lane)
        out[lane] = (short2)(((int *)&best_y)[lane], ((int *)&best_x)[lane]);
#else
    const int place = get_local_id(1);
    offered[place][d] = least;
    offered_y[place][d] = best_y;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (d > 0 || (int)get_global_id(1) >= block_columns)
        return;
    #pragma unroll
    for (int k = 1; k < NEAREST; ++k) {
        const bool better = offered[place][k] < least;
        least = better ? offered[place][k] : least;
        best_y = better ? offered_y[place][k] : best_y;
        best_x = better ? k - NEAREST / 2 : best_x;
    }
    *out = (short2)(best_y, best_x);
#endif
}
