// Compares a reference patch whose columns are spread over lanes with candidates that lie one above the other.
//
// Reference: Davy and Ehret 2020, section 4.2.4.
// Constants: PATCH, KEPT. The macros use `patch`, `pitch`, `bias` and `own` of the kernel.

typedef float8 REAL;
#include "common/float8_rows.h"
#define LOAD(pointer) ROW(pointer)

// Sums of squared differences, lane by lane, for `height` candidates, the first of which has its corner at `pixels`.
#define COMPARE_COLUMN(sums, height, pixels, scale, shift)                                              \
    {                                                                                                   \
        _Pragma("unroll") for (int k = 0; k < (height); ++k) sums[k] = (REAL)0.0f;                      \
        _Pragma("unroll") for (int r = 0; r < (height) - 1 + PATCH; ++r) {                              \
            const REAL line = LOAD((pixels) + r * pitch) * (scale) + (shift);                           \
            _Pragma("unroll") for (int k = 0; k < (height); ++k) {                                      \
                if (r >= k && r - k < PATCH) {                                                          \
                    const REAL e = patch[(r - k) % PATCH] - line;                                       \
                    sums[k] = fma(e, e, sums[k]);                                                       \
                }                                                                                       \
            }                                                                                           \
        }                                                                                               \
    }

// Inserts the candidates of a column into `own`.
#define OFFER_COLUMN(sums, height, dt, top, dx)                                                         \
    for (int k = 0; k < (height); ++k) {                                                                \
        keep_candidate(own, KEPT, candidate(lanes_sum(sums[k]), dt, (top) + k, dx, bias));              \
    }
