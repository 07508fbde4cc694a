// Finds the NEIGHBOURS most similar patches of each reference patch on a GPU, where patches consist of whole STEP x STEP squares.
//
// Reference: Davy and Ehret 2020, section 4.1.4. A work-item compares one square of the image with its shifted copies. The
//   distance of a patch is the sum over its squares, which neighbouring patches share through local memory. Beyond the paper:
//   the shifted rows stay in registers from one row of offsets to the next, and good candidates are inserted in batches
//   (common/best_matches.h); a row of offsets is completed beside the next one.
// Grid: groups of (GROUP_X, GROUP_Y) squares, frames in z; see common/search_group.h.
// Constants: PATCH (a multiple of STEP), STEP, WINDOW, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y, CHUNK (offsets compared between
//   two barriers; a multiple of 4); WARP_ROWS = 1 for patches of 2 x 2 or 4 x 4 squares where warps hold whole rows of items
//   (NVIDIA): these add up along x by exchanges within the warp.
// Shapes: padded as pad_far writes it with SPLIT = 1; ranks (frames searched, slices searched, WINDOW, WINDOW), the index of
//   each offset in the table; keys (frames, rows, NEIGHBOURS, columns), sorted.
// Cost of a square and offset: 2 STEP^2 operations, (PATCH / STEP)^2 + 2 + (STEP + CHUNK) / CHUNK words of local memory.

#include "common/patch_grid.h"
#include "common/match_key.h"
#define GROUP_SIZE (GROUP_X * GROUP_Y)
#include "common/best_matches.h"
#include "common/search_group.h"
#if WARP_ROWS
#include "common/from_right.h"
#endif

#define SQUARES (PATCH / STEP)
#define REFERENCES_X (GROUP_X - SQUARES + 1)
#define REFERENCES_Y (GROUP_Y - SQUARES + 1)
#define CHUNKS ((WINDOW + CHUNK - 1) / CHUNK)
#define TILE_X (GROUP_X * STEP + CHUNKS * CHUNK)
#define TILE_Y (GROUP_Y * STEP + WINDOW - 1)
#define RUN (STEP + CHUNK)
#define LAST_CHUNK (WINDOW - (CHUNKS - 1) * CHUNK)
// The row of offsets that is compared first: near the middle, a multiple of STEP.
#define MIDDLE (WINDOW / 2 / STEP * STEP)

#if WARP_ROWS
#define ACROSS 1
#else
#define ACROSS SQUARES
#endif

static inline void load_run(float *run, __local const float *from)
{
#if STEP % 4 == 0
    #pragma unroll
    for (int k = 0; k < RUN / 4; ++k) {
        const float4 four = ((__local const float4 *)from)[k];
        run[4 * k] = four.x;
        run[4 * k + 1] = four.y;
        run[4 * k + 2] = four.z;
        run[4 * k + 3] = four.w;
    }
#else
    #pragma unroll
    for (int k = 0; k < RUN; ++k)
        run[k] = from[k];
#endif
}

// Completes the sums of a row of offsets with those of the items beside and below, and offers their keys.
static inline void offer_row(float *sums, __local float4 (*partial)[GROUP_Y][GROUP_X], __local const int *rank,
                             const uint *best, __local uint *pending, int *waiting)
{
    int ranks[CHUNK];
    #pragma unroll
    for (int k = 0; k < CHUNK / 4; ++k) {
        #pragma unroll
        for (int i = 0; i < SQUARES; ++i) {
            #pragma unroll
            for (int j = i == 0; j < ACROSS; ++j) {
                // Of items that serve no reference, any will do.
                const int y = min((int)get_local_id(1) + i, GROUP_Y - 1), x = min((int)get_local_id(0) + j, GROUP_X - 1);
                vstore4(vload4(k, sums) + partial[k][y][x], k, sums);
            }
        }
        vstore4(((__local const int4 *)rank)[k], k, ranks);
    }
    #pragma unroll
    for (int d = 0; d < CHUNK; ++d)
        offer_key(best, pending, waiting, (as_uint(sums[d]) & ~INDEX_MASK) | (uint)ranks[d]);
}

__kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, 1)))
void search_square(TILE_ARGUMENTS, int regular_y, int regular_x, int frames_before, int frames_after, int slices,
                   __global const int *ranks, __global uint *keys)
{
    __local float tile[TILE_Y * TILE_X] __attribute__((aligned(16)));
    __local float4 partial[2][CHUNK / 4][GROUP_Y][GROUP_X];
    __local int rank_rows[WINDOW * CHUNKS * CHUNK] __attribute__((aligned(16)));
    __local uint pending[PENDING * GROUP_SIZE];

    REFERENCE_OF_ITEM(REFERENCES_Y, REFERENCES_X)

    float square[STEP][STEP];
    #pragma unroll
    for (int i = 0; i < STEP; ++i) {
        #pragma unroll
        for (int j = 0; j < STEP; ++j)
            square[i][j] = padded_pixel(here, pny, pitch, top + ly * STEP + i, left + lx * STEP + j);
    }

    // Items without a reference keep no key.
    uint best[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = mine ? NO_MATCH : 0u;
    int waiting = 0;
    int seen = 0;
    int next = 1;

    // The sums of a row of offsets. They are completed beside those of the next row, so that work-items seldom wait for each
    // other; one barrier a row is enough as `partial` holds two rows. A barrier comes before all exchanges within a warp.
    float sums[CHUNK];
    #pragma unroll
    for (int d = 0; d < CHUNK; ++d)
        sums[d] = INFINITY;
    int turned = 0;    // which half of `partial` holds them
    int place = 0;     // of its ranks
    int compared = 0;  // offsets in it
    #pragma unroll
    for (int k = 0; k < CHUNK / 4; ++k)
        partial[0][k][ly][lx] = (float4)0.0f;

    for (int frame_number = 0; frame_number <= frames_before + frames_after; ++frame_number)
    for (int dz = -slices; dz <= slices; ++dz) {
        const int dt = nearest_first(frame_number, frames_before, frames_after);
        __global const float *there = here + ((long)dt * pnz + dz) * (long)plane;
        __global const int *rank_frame = ranks + ((dt + frames_before) * (2 * slices + 1) + dz + slices) * (WINDOW * WINDOW);
        barrier(CLK_LOCAL_MEM_FENCE);
        copy_pixels(tile, TILE_Y, TILE_X, item, GROUP_SIZE, there, pny, pitch, top - WINDOW / 2, left - WINDOW / 2);
        for (int k = item; k < WINDOW * CHUNKS * CHUNK; k += GROUP_SIZE)
            rank_rows[k] = rank_frame[k / (CHUNKS * CHUNK) * WINDOW + min(k % (CHUNKS * CHUNK), WINDOW - 1)];
        barrier(CLK_LOCAL_MEM_FENCE);

        // From the middle out: chunks, and of each the rows below the middle before those above.
        for (int nth = 0; nth < 2 * CHUNKS; ++nth) {
            const int chunk = from_middle(nth / 2, CHUNKS);
            const int first_dy = nth % 2 ? 0 : MIDDLE;
            const int stop_dy = nth % 2 ? MIDDLE : WINDOW;
            __local const float *corner = tile + ly * STEP * TILE_X + lx * STEP + chunk * CHUNK;
            const int offsets = min(CHUNK, WINDOW - chunk * CHUNK);
            float run[STEP][RUN];
            #pragma unroll
            for (int i = 0; i < STEP - 1; ++i)
                load_run(run[i], corner + (first_dy + i) * TILE_X);
            for (int dy0 = first_dy; dy0 < stop_dy; dy0 += STEP) {
                #pragma unroll
                for (int turn = 0; turn < STEP; ++turn) {
                    const int dy = dy0 + turn;
                    if (dy < stop_dy) {
                        // Row i of the shifted square is run[(turn + i) % STEP]: only the last row is new.
                        load_run(run[(turn + STEP - 1) % STEP], corner + (dy + STEP - 1) * TILE_X);
                        offer_row(sums, partial[turned], rank_rows + place, best, pending + item, &waiting);
                        #pragma unroll
                        for (int d = 0; d < CHUNK; ++d) {
                            sums[d] = INFINITY;
                            if (d < LAST_CHUNK || offsets == CHUNK) {
                                float sum = 0.0f;
                                #pragma unroll
                                for (int i = 0; i < STEP; ++i) {
                                    #pragma unroll
                                    for (int j = 0; j < STEP; ++j) {
                                        const float e = square[i][j] - run[(turn + i) % STEP][j + d];
                                        sum = fma(e, e, sum);
                                    }
                                }
#if WARP_ROWS
                                sum += from_right(sum, 1);
                                if (SQUARES == 4)
                                    sum += from_right(sum, 2);
#endif
                                sums[d] = sum;
                            }
                        }
                        turned ^= 1;
                        #pragma unroll
                        for (int k = 0; k < CHUNK / 4; ++k)
                            partial[turned][k][ly][lx] = vload4(k, sums);
                        keep_pending(best, pending + item, &waiting, compared, &seen, &next);
                        compared = offsets;
                        place = dy * (CHUNKS * CHUNK) + chunk * CHUNK;
                        barrier(CLK_LOCAL_MEM_FENCE);
                    }
                }
            }
        }
        offer_row(sums, partial[turned], rank_rows + place, best, pending + item, &waiting);
        keep_pending(best, pending + item, &waiting, compared, &seen, &next);
        compared = 0;
        #pragma unroll
        for (int d = 0; d < CHUNK; ++d)
            sums[d] = INFINITY;
    }
    if (mine)
        store_matches(best, pending + item, waiting,
                      keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column, columns);
}
