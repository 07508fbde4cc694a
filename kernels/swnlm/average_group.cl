// Averages the pixels of a window whose patches differ like noise, for GPUs: a work-group takes a block of pixels, CHUNK offsets at
// a time. Pairs of patches that pass the tests of mean and deviation are queued, so that work-items sort them side by side.
//
// Reference: van der Vuurst 2023, algorithm 3.
// Grid: (nx, ny, frames), rounded up to whole groups of (GROUP_X, GROUP_Y).
// Constants: PATCH, WINDOW; GROUP_X, GROUP_Y; CHUNK, at most 32 and WINDOW; SIGMA_MAP; SHOW, 1 yields how many pixels were averaged, with the pixel itself.
// Shapes: padded, sums (frames, pny, pitch), see sum_patches; the window of the first pixel yielded begins at (PATCH / 2, PATCH / 2).
//   out (frames, ny, nx); levels (frames); variation (pny, pitch), as padded; weights (PATCH * PATCH / 2).
// Cost: 35 instructions a pair of patches, and 2 for each exchange where they are sorted; sorted are 12 to 36 of 100.
// A pixel that fewer than `fewest` resemble is left as it is in `out`, or becomes the noisy one where `keep` is not 0.
// The place of a pair in the queue follows from its pixel and offset, and a pixel adds its own in the order of the offsets: the
// result does not depend on which items sorted them, nor on where a group begins.

#define LANES 1
#include "common/lanes.h"
#include "swnlm/normality.h"

#define AROUND (WINDOW / 2)
#define HALF (PATCH / 2)
#define GROUP (GROUP_X * GROUP_Y)
// The image that a group reads, and the sums of patches.
#define WIDE (GROUP_X + WINDOW + PATCH - 2)
#define HIGH (GROUP_Y + WINDOW + PATCH - 2)
#define SUMS_X (GROUP_X + WINDOW - 1)
#define SUMS_Y (GROUP_Y + WINDOW - 1)
// Columns of a patch: sums of GROUP_Y rows of squares, for every offset of a chunk.
#define COLUMNS (GROUP_X + PATCH - 1)
#define RUNS (CHUNK * COLUMNS)
#define SCRATCH (RUNS * GROUP_Y)
// Of a number from 1 to 2, whose last bits are the item and the offset of a pair: those of a tiny number might be lost.
#define QUEUED 0x3f800000
// Chunks in a row of the window.
#define PARTS ((WINDOW + CHUNK - 1) / CHUNK)

__kernel void average_group(__global const float *padded, __global const float *sums, int pny, int pitch,
                            int ny, int nx, __global const float *levels, __global const float *variation,
                            __constant float *weights, float4 limits, float least, int fewest, int keep, __global float *out)
{
    __local float tile[HIGH * WIDE];
    __local float means[SUMS_Y * SUMS_X];
    // Sums of squares; after the tests the queue, whose entries become W.
    __local float scratch[SCRATCH];
    __local int ends[GROUP];
    const int lx = get_local_id(0);
    const int ly = get_local_id(1);
    const int item = ly * GROUP_X + lx;
    const int left = get_group_id(0) * GROUP_X;
    const int top = get_group_id(1) * GROUP_Y;
    const int frame = get_group_id(2);
    const int x = left + lx;
    const int y = top + ly;
    const size_t plane = (size_t)frame * pny * pitch;
    const float level = levels[frame];
    for (int k = item; k < HIGH * WIDE; k += GROUP)
        tile[k] = padded[plane + (size_t)min(top + k / WIDE, pny - 1) * pitch + left + k % WIDE];
    for (int k = item; k < SUMS_Y * SUMS_X; k += GROUP)
        means[k] = sums[plane + (size_t)min(top + k / SUMS_X, pny - 1) * pitch + left + k % SUMS_X];
    const float pixel = padded[plane + (size_t)min(y + AROUND + HALF, pny - 1) * pitch + x + AROUND + HALF];
    const float mean = sums[plane + (size_t)min(y + AROUND, pny - 1) * pitch + x + AROUND];
#if SIGMA_MAP
    const float mine = variation[(size_t)min(y + AROUND + HALF, pny - 1) * pitch + x + AROUND + HALF];
#endif
    float total = 0.0f, weight = 0.0f, best = 0.0f;
    int accepted = 0;

    for (int chunk = 0; chunk < WINDOW * PARTS; ++chunk) {
        const int dy = chunk / PARTS;
        const int dx = chunk % PARTS * CHUNK;
        const int count = min(CHUNK, WINDOW - dx);
        // The tile is there, and the last chunk's queue is done with.
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int run = item; run < count * COLUMNS; run += GROUP) {
            const int column = run % COLUMNS;
            const int offset = run / COLUMNS;
            __local const float *here = tile + AROUND * WIDE + AROUND + column;
            __local const float *there = tile + dy * WIDE + dx + offset + column;
            float squares[GROUP_Y + PATCH - 1];
            #pragma unroll
            for (int k = 0; k < GROUP_Y + PATCH - 1; ++k) {
                const float difference = here[k * WIDE] - there[k * WIDE];
                squares[k] = difference * difference;
            }
            #pragma unroll
            for (int k = 0; k < GROUP_Y; ++k) {
                float sum = squares[k];
                #pragma unroll
                for (int j = 1; j < PATCH; ++j)
                    sum += squares[k + j];
                scratch[(offset * GROUP_Y + k) * COLUMNS + column] = sum;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Bit k: offset k of this chunk passed the tests of mean and deviation.
        uint passed = 0;
        for (int k = 0; k < count; ++k) {
            __local const float *row = scratch + (k * GROUP_Y + ly) * COLUMNS + lx;
            float squares = row[0];
            #pragma unroll
            for (int i = 1; i < PATCH; ++i)
                squares += row[i];
            const float more = tile[(ly + dy + HALF) * WIDE + lx + dx + k + HALF] - pixel;
            const float sum = fma(more, -VALUES, mean - means[(ly + dy) * SUMS_X + lx + dx + k]);
            const float spread = spread_of(sum, squares);
#if SIGMA_MAP
            const int row_there = min(y + dy + HALF, pny - 1);
            const float other = variation[(size_t)row_there * pitch + x + dx + k + HALF];
            const float variance = level * level * fma(mine, mine, other * other);
#else
            const float variance = 2.0f * level * level;
#endif
            if (LIKE_NOISE(sum, spread, variance, limits))
                passed |= 1u << k;
        }
        if (x >= nx || y >= ny)
            passed = 0;
        const int mine_passed = popcount(passed);
        ends[item] = mine_passed;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int apart = 1; apart < GROUP; apart *= 2) {
            const int before = item >= apart ? ends[item - apart] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            ends[item] += before;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const int queued = ends[GROUP - 1];
        const int first = ends[item] - mine_passed;
        int next = first;
        for (uint bits = passed; bits; bits &= bits - 1)
            scratch[next++] = as_float(QUEUED | (item * 32 + 31 - (int)clz(bits & -bits)));
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < queued; k += GROUP) {
            const int code = as_int(scratch[k]) & ~QUEUED;
            const int pair_x = code / 32 % GROUP_X;
            const int pair_y = code / 32 / GROUP_X;
            __local const float *here = tile + (pair_y + AROUND) * WIDE + pair_x + AROUND;
            __local const float *there = tile + (pair_y + dy) * WIDE + pair_x + dx + code % 32;
            const int mean_here = (pair_y + AROUND) * SUMS_X + pair_x + AROUND;
            const int mean_there = (pair_y + dy) * SUMS_X + pair_x + dx + code % 32;
            float f[VALUES];
            float squares = 0.0f;
            #pragma unroll
            for (int j = 0; j < PATCH; ++j) {
                float row = 0.0f;
                #pragma unroll
                for (int i = 0; i < PATCH; ++i) {
                    const float difference = here[j * WIDE + i] - there[j * WIDE + i];
                    f[j * PATCH + i] = difference;
                    row = fma(difference, difference, row);
                }
                squares += row;
            }
            const float more = there[HALF * WIDE + HALF] - here[HALF * WIDE + HALF];
            const float sum = fma(more, -VALUES, means[mean_here] - means[mean_there]);
            scratch[k] = shapiro_wilk(f, spread_of(sum, squares), weights);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        next = first;
        for (uint bits = passed; bits; bits &= bits - 1) {
            const float w = scratch[next++];
            if (w > least) {
                const int k = 31 - clz(bits & -bits);
                total = fma(w, tile[(ly + dy + HALF) * WIDE + lx + dx + k + HALF] - pixel, total);
                weight += w;
                best = fmax(best, w);
                ++accepted;
            }
        }
    }
    if (x >= nx || y >= ny)
        return;
    const size_t to = ((size_t)frame * ny + y) * nx + x;
    if (SHOW)
        out[to] = accepted + 1;
    else if (accepted >= fewest)
        out[to] = pixel + total / (weight + best);
    else if (keep)
        out[to] = pixel;
}
