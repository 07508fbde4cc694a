// A team: the work-items that hold one group of patches in registers.
//
// Reference: Davy and Ehret 2020, section 4.4, algorithm 9. Eight items are a part of a team: each holds one column, or
//   one row of the spectra, of DEPTH patches.
// Constants: NEIGHBOURS, DEPTH, TEAMS, WARP_SYNC; LINE (values from row to row of a transposition: with 9, neither writing nor
//   reading meets one of 32 banks twice); WIDE = 1 exchanges vectors of all patches of an item: fewer instructions, and up to
//   five times the local memory. DEPTH is then 2 or 4, and NEIGHBOURS a multiple of 4.

// A barrier for a team. With WARP_SYNC = 1 a warp holds whole teams (NVIDIA): its barrier is enough, and costs less.
#if WARP_SYNC
#define TEAM_SYNC() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define TEAM_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#endif

#define PARTS (NEIGHBOURS / DEPTH)
#define TEAM (8 * PARTS)
// Coefficients of a patch that an item holds while stacks are transformed.
#define ROWS (8 / PARTS)
#define ITEMS (TEAM * TEAMS)
// Values that an item holds.
#define VALUES (DEPTH * 8)
#if WIDE
// Values from row to row of a transposition, and from stack to stack: eight neighbouring items meet no bank twice.
#define ROW_LINE (8 * DEPTH + 4)
#define STACK_LINE (NEIGHBOURS + 4)
// Local memory of a part: for a transposition, in which two parts must not meet in a bank; for its share of the stacks.
#define TURNED (8 * ROW_LINE + (DEPTH == 2 ? 16 : 0))
#define SCRATCH (64 * STACK_LINE / PARTS)
#if DEPTH == 4
#define DEPTH_VECTOR float4
#define LOAD_PATCHES vload4
#define STORE_PATCHES vstore4
#elif DEPTH == 2
#define DEPTH_VECTOR float2
#define LOAD_PATCHES vload2
#define STORE_PATCHES vstore2
#endif
#else
#define SCRATCH (8 * LINE)
#define TURNED SCRATCH
#endif

// Turns columns into rows and back, among the eight items of a part. v holds [coefficient][patch].
__attribute__((always_inline))
static inline void transpose(float *v, __local float *scratch, int lane)
{
#if WIDE
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        *(__local DEPTH_VECTOR *)(scratch + i * ROW_LINE + lane * DEPTH) = LOAD_PATCHES(i, v);
    TEAM_SYNC();
    #pragma unroll
    for (int k = 0; k < VALUES; k += 4)
        vstore4(*(__local const float4 *)(scratch + lane * ROW_LINE + k), 0, v + k);
#else
    #pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        TEAM_SYNC();
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            scratch[i * LINE + lane] = v[i * DEPTH + d];
        TEAM_SYNC();
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i * DEPTH + d] = scratch[lane * LINE + i];
    }
#endif
}

// Sum over the items of a team: of each eight, then of these sums.
__attribute__((always_inline))
static inline float team_sum(float own, __local float *scratch, int member)
{
    TEAM_SYNC();
    scratch[member] = own;
    TEAM_SYNC();
    float eight = 0.0f;
    #pragma unroll
    for (int k = 0; k < 8; ++k)
        eight += scratch[(member & ~7) + k];
    scratch[TEAM + member] = eight;
    TEAM_SYNC();
    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < PARTS; ++k)
        total += scratch[TEAM + 8 * k];
    return total;
}
