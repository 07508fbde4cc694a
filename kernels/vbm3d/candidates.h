// The best candidates of a search in a video: distance and place in one 64-bit number, so that ties are settled by the place.

#include "common/match_key.h"
#include "common/place_code.h"

typedef ulong CANDIDATE;
#define NO_CANDIDATE 0xffffffffffffffffUL

// A patch that reaches outside the image is no candidate. `still` is subtracted from the distance of a patch that has not moved.
static inline CANDIDATE candidate(float distance, int dt, int dy, int dx, float still)
{
    const bool unmoved = dt != 0 && dy == 0 && dx == 0;
    const float favoured = unmoved ? fmax(distance - still, 0.0f) : distance;
    const uint key = as_uint(favoured);
    return key < FAR_KEY ? (ulong)key << 32 | place_code(dt, dy, dx) : NO_CANDIDATE;
}

static inline uint candidate_place(CANDIDATE one)
{
    return (uint)one;
}

static inline bool is_candidate(CANDIDATE one)
{
    return one != NO_CANDIDATE;
}

// The candidate if its distance is within the limit, else none. The reference itself always is.
static inline CANDIDATE near_enough(CANDIDATE one, float limit)
{
    const bool near = candidate_place(one) == 0u || as_float((uint)(one >> 32)) <= limit;
    return is_candidate(one) && near ? one : NO_CANDIDATE;
}

// Inserts a candidate into a sorted list of `count`. No min and max: of 64-bit numbers, these crash the compiler of Intel's CPU
// runtime 2026.2 on processors with AVX-512 (tests/opencl/compiler_cases/least_of_longs.cl).
static inline void insert_candidate(CANDIDATE *best, int count, CANDIDATE one)
{
    #pragma unroll
    for (int k = 0; k < count; ++k) {
        const CANDIDATE kept = best[k];
        const bool before = one < kept;
        best[k] = before ? one : kept;
        one = before ? kept : one;
    }
}

// Inserts a candidate if it is better than the last one.
static inline void keep_candidate(CANDIDATE *best, int count, CANDIDATE one)
{
    if (one < best[count - 1])
        insert_candidate(best, count, one);
}

// Arguments of the searches; see search_tracks.cl.
#define SEARCH_ARGUMENTS \
    __global const float *images, int ring, int first, int pny, int pitch, int y0, int x0, int ny, int nx, \
    int first_y, int last_y, int rows, int first_x, int last_x, int columns, int groups_x, \
    __global const float *links, int frames_before, int frames_after, float still, float similar, \
    __global uint *keys, __global uint *places

// What the searches know of a reference; with vbm3d/motion.h and the grid in common/patch_grid.h. A frame without noise is not
// searched.
#define REFERENCE_AT(row, column) \
    const int y = y0 + grid_position(row, first_y, last_y); \
    const int x = x0 + grid_position(column, first_x, last_x); \
    const size_t plane = (size_t)pny * pitch; \
    const int slot = ring_slot(first, frame, ring); \
    __global const float *here = images + slot * plane + (size_t)y * pitch + x; \
    const int centre_link = frame * (frames_before + 1 + frames_after) + frames_before; \
    const float sigma = frame_link(links, centre_link).noise; \
    const float bias = still * sigma * sigma; \
    const float limit = similar * sigma * sigma;
