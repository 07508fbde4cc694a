// Finds how every block of a frame moves to the next frame and to the previous one: the displacement at which the block and
// those around it, 3 x 3 together, differ least. Larger displacements need a better match.
//
// Grid: (block columns, block rows, 2 * pairs); VECTOR = 1: a work-item takes eight blocks.
// Constants: PATCH = 8, NEAREST (full width of the window), VECTOR.
// Shapes: costs, pairs and links as in compare_blocks; motions (ring, 2, block rows, block columns), (dy, dx) forward and
//   backward in time, `first` the slot of frame 0. Blocks of frames that may not be compared do not move.
// Cost: 9 * NEAREST^2 additions a block.

#include "common/frame_ring.h"
#include "vbm3d/blocks.h"
#if VECTOR
#include "common/float8_rows.h"
typedef float8 REAL;
typedef int8 WHOLE;
#define LANES 8
#define LOAD(pointer) ROW(pointer)
#else
typedef float REAL;
typedef int WHOLE;
#define LANES 1
#define LOAD(pointer) (*(pointer))
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

__kernel void block_motion(__global const float *costs, int cost_pitch, int ring, int first, int ny, int nx,
                           __global const float *links, int first_pair, int frames_before, int frames_after,
                           int shift_y, int shift_x, int block_rows, int block_columns, __global short2 *motions)
{
    const int column = get_global_id(0) * LANES;
    const int row = get_global_id(1);
    const int which = get_global_id(2);
    if (column >= block_columns || row >= block_rows)
        return;
    const BlockPair pair = block_pair(links, first_pair, which, frames_before, frames_after);
    const int slot = ring_slot(first, pair.own, ring);
    __global short2 *out = motions + ((size_t)(2 * slot + (which & 1)) * block_rows + row) * block_columns + column;
    WHOLE best_y = (WHOLE)0, best_x = (WHOLE)0;
    if (pair.link.noise > 0.0f) {
        const float lean = LEAN * PATCH * PATCH * pair.link.noise * pair.link.noise;
        const size_t blocks = (size_t)(block_rows + 2) * cost_pitch;
        __global const float *around = costs + (size_t)which * (NEAREST * NEAREST) * blocks + (size_t)row * cost_pitch + column;
        const int y = row * PATCH - shift_y;
        REAL least = (REAL)INFINITY, still = (REAL)0.0f;
#if VECTOR
        for (int lane = 0; lane < LANES; ++lane)
            ((float *)&still)[lane] = blocks_inside(y, ny, 0) * blocks_inside((column + lane) * PATCH - shift_x, nx, 0);
#else
        still = blocks_inside(y, ny, 0) * blocks_inside(column * PATCH - shift_x, nx, 0);
#endif
        for (int d = 0; d < NEAREST; ++d) {
            const int dx = d - NEAREST / 2;
            REAL across = (REAL)0.0f;
#if VECTOR
            for (int lane = 0; lane < LANES; ++lane)
                ((float *)&across)[lane] = blocks_inside((column + lane) * PATCH - shift_x, nx, dx);
#else
            across = blocks_inside(column * PATCH - shift_x, nx, dx);
#endif
            for (int k = 0; k < NEAREST; ++k) {
                const int dy = k - NEAREST / 2;
                __global const float *cost = around + (size_t)(k * NEAREST + d) * blocks;
                REAL sum = (REAL)0.0f;
                #pragma unroll
                for (int i = 0; i < 3; ++i)
                    sum += LOAD(cost + i * cost_pitch) + LOAD(cost + i * cost_pitch + 1) + LOAD(cost + i * cost_pitch + 2);
                const REAL count = across * (float)blocks_inside(y, ny, dy);
                const REAL mean = sum / fmax(count, (REAL)1.0f) + lean * (float)(abs(dy) + abs(dx));
                // Half of those that could be compared must be, lest few blocks at a border decide.
                const WHOLE better = count > 0.0f && 2.0f * count >= still && mean < least;
                least = select(least, mean, better);
                best_y = select(best_y, (WHOLE)dy, better);
                best_x = select(best_x, (WHOLE)dx, better);
            }
        }
    }
#if VECTOR
    for (int lane = 0; lane < LANES && column + lane < block_columns; ++lane)
        out[lane] = (short2)(((int *)&best_y)[lane], ((int *)&best_x)[lane]);
#else
    *out = (short2)(best_y, best_x);
#endif
}
