// The best candidates of a predictive search: distance and place in one number, so that ties are settled by the place.
//
// Needs: WINDOW, NEXT, KEPT.

#include "common/match_key.h"
#include "common/place_code.h"

typedef ulong CANDIDATE;
#define NO_CANDIDATE 0xffffffffffffffffUL

// A patch that reaches out of the image is none; one that has not moved may be favoured by `still`.
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

static inline void insert_candidate(CANDIDATE *best, int count, CANDIDATE one)
{
    #pragma unroll
    for (int k = 0; k < count; ++k) {
        const CANDIDATE kept = min(best[k], one);
        one = max(best[k], one);
        best[k] = kept;
    }
}

// Whether a displacement lies in the window around one that was searched before.
static inline bool within(CANDIDATE centre, int dy, int dx)
{
    const uint place = candidate_place(centre);
    return is_candidate(centre) && abs(dy - place_y(place)) <= NEXT / 2 && abs(dx - place_x(place)) <= NEXT / 2;
}
