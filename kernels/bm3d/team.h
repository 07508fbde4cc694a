// A team: the work-items that hold one group of patches in registers.
//
// Reference: Davy and Ehret 2020, section 4.4, algorithm 9. Eight items are a part of a team: each holds one column, or
//   one row of the spectra, of DEPTH patches.
// Constants: NEIGHBOURS, DEPTH, TEAMS, LINE (values from row to row of a transposition: with 9, neither writing nor reading
//   meets one of 32 banks twice), WARP_SYNC.

#include "common/team_sync.h"

#define PARTS (NEIGHBOURS / DEPTH)
#define TEAM (8 * PARTS)
// Coefficients of a patch that an item holds while stacks are transformed.
#define ROWS (8 / PARTS)
#define ITEMS (TEAM * TEAMS)
// Values that an item holds.
#define VALUES (DEPTH * 8)
// Local memory that a part needs to exchange values.
#define SCRATCH (8 * LINE)

// Turns columns into rows and back, among the eight items of a part.
static inline void transpose(float *v, __local float *scratch, int lane)
{
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        scratch[i * LINE + lane] = v[i];
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        v[i] = scratch[lane * LINE + i];
}

// Sum over the items of a team.
static inline float team_sum(float own, __local float *scratch, int member)
{
    TEAM_SYNC();
    scratch[member] = own;
    TEAM_SYNC();
    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < TEAM; ++k)
        total += scratch[k];
    return total;
}
