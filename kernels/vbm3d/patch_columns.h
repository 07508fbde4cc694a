// Compares a reference patch whose columns are spread over lanes with candidates that lie one above the other.
//
// Reference: Davy and Ehret 2020, section 4.2.4.
// Constants: PATCH, KEPT; VECTOR = 1: lanes are those of a vector (CPUs), 0: work-items; WARP_SYNC as in common/team_sync.h.
// The macros use `patch`, `pitch`, `bias` and `own` of the kernel, and with VECTOR = 0 `reference`, `partial` and `offers`.

#if VECTOR
typedef float8 REAL;
#include "common/float8_rows.h"
#define LOAD(pointer) ROW(pointer)
#define TEAM_SYNC()
#define LANE 0
#else
typedef float REAL;
#define LOAD(pointer) (*(pointer))
#define LANE ((int)get_local_id(0))
#include "common/team_sync.h"
#endif

// Sums of squared differences, lane by lane, for `height` candidates `stride` apart, the first of which has its corner at
// `pixels`.
#define COMPARE_COLUMN(sums, height, stride, pixels, scale, shift)                                           \
    {                                                                                                        \
        _Pragma("unroll") for (int k = 0; k < (height); ++k) sums[k] = (REAL)0.0f;                           \
        _Pragma("unroll") for (int r = 0; r < ((height) - 1) * (stride) + PATCH; ++r) {                      \
            const REAL line = LOAD((pixels) + r * pitch) * (scale) + (shift);                                \
            _Pragma("unroll") for (int k = 0; k < (height); ++k) {                                           \
                if (r >= k * (stride) && r - k * (stride) < PATCH) {                                         \
                    const REAL e = patch[(r - k * (stride)) % PATCH] - line;                                 \
                    sums[k] = fma(e, e, sums[k]);                                                            \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

#if VECTOR
// Inserts the candidates of a column into `own`; only those that are `fresh`.
#define OFFER_COLUMN(sums, height, stride, dt, top, dx, fresh)                                       \
    for (int k = 0; k < (height); ++k) {                                                             \
        const CANDIDATE one = candidate(lanes_sum(sums[k]), dt, (top) + k * (stride), dx, bias);     \
        if (one < own[KEPT - 1] && (fresh))                                                          \
            insert_candidate(own, KEPT, one);                                                        \
    }
#else
// The same for work-items, which exchange their sums: each adds up those of one candidate.
#define OFFER_COLUMN(sums, height, stride, dt, top, dx, fresh)                                       \
    _Pragma("unroll") for (int base = 0; base < (height); base += PATCH) {                           \
        TEAM_SYNC();                                                                                 \
        _Pragma("unroll") for (int k = base; k < base + PATCH; ++k)                                  \
            if (k < (height)) partial[reference][k - base][LANE] = sums[k];                          \
        TEAM_SYNC();                                                                                 \
        const int k = base + LANE;                                                                   \
        if (k < (height)) {                                                                          \
            float sum = 0.0f;                                                                        \
            _Pragma("unroll") for (int l = 0; l < PATCH; ++l) sum += partial[reference][LANE][l];    \
            const CANDIDATE one = candidate(sum, dt, (top) + k * (stride), dx, bias);                \
            insert_candidate(own, KEPT, (fresh) ? one : NO_CANDIDATE);                               \
        }                                                                                            \
    }
#endif

// The best candidates of all lanes of a reference.
#if VECTOR
#define SHARE(best)                                                                                  \
    for (int k = 0; k < KEPT; ++k)                                                                   \
        best[k] = own[k];
#else
#define SHARE(best)                                                                                  \
    {                                                                                                \
        TEAM_SYNC();                                                                                 \
        _Pragma("unroll") for (int k = 0; k < KEPT; ++k) offers[reference][LANE][k] = own[k];        \
        TEAM_SYNC();                                                                                 \
        _Pragma("unroll") for (int k = 0; k < KEPT; ++k) best[k] = NO_CANDIDATE;                     \
        _Pragma("unroll") for (int l = 0; l < PATCH; ++l) {                                          \
            _Pragma("unroll") for (int k = 0; k < KEPT; ++k)                                         \
                insert_candidate(best, KEPT, offers[reference][l][k]);                               \
        }                                                                                            \
    }
#endif
