// Brings whole stacks into single work-items of a team, and back: from DEPTH patches with 8 coefficients each to NEIGHBOURS
// patches with ROWS each.
//
// Reference: Davy and Ehret 2020, section 4.4, algorithm 10; here by exchanges in halves between two parts at a time, or with
//   WIDE of all values at once.
// Needs: bm3d/team.h.

// First x frequency of the coefficients that a part holds of a stack.
static inline int first_coefficient(int part)
{
    return (part & 1) * 4 + (part & 2);
}

#if WIDE
// v holds [coefficient][patch], before and after.
__attribute__((always_inline))
static inline void gather_stack(float *v, __local float *scratch, int item)
{
    const int lane = item % 8, part = item / 8;
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        *(__local DEPTH_VECTOR *)(scratch + (8 * i + lane) * STACK_LINE + part * DEPTH) = LOAD_PATCHES(i, v);
    TEAM_SYNC();
    __local const float *stacks = scratch + (8 * first_coefficient(part) + lane) * STACK_LINE;
    #pragma unroll
    for (int i = 0; i < VALUES; i += 4)
        vstore4(*(__local const float4 *)(stacks + i / NEIGHBOURS * (8 * STACK_LINE) + i % NEIGHBOURS), 0, v + i);
}

__attribute__((always_inline))
static inline void scatter_stack(float *v, __local float *scratch, int item)
{
    const int lane = item % 8, part = item / 8;
    __local float *stacks = scratch + (8 * first_coefficient(part) + lane) * STACK_LINE;
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < VALUES; i += 4)
        *(__local float4 *)(stacks + i / NEIGHBOURS * (8 * STACK_LINE) + i % NEIGHBOURS) = vload4(0, v + i);
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        STORE_PATCHES(*(__local const DEPTH_VECTOR *)(scratch + (8 * i + lane) * STACK_LINE + part * DEPTH), i, v);
}
#else
// Two parts exchange halves of their values: the lower one keeps its first half and gets the first half of the other.
// Vectors, since loops over values become loops over pointers into v that differ from item to item: these the compiler of Intel's
// CPU runtime 2026.2 gets wrong (tests/opencl/compiler_cases/chosen_pointer.cl).
__attribute__((always_inline))
static inline void swap_halves(float *v, __local float *scratch, int item, int other, bool lower)
{
    #pragma unroll
    for (int start = 0; start < VALUES / 2; start += 8) {
        const float8 first = vload8(0, v + start), second = vload8(0, v + VALUES / 2 + start);
        float moved[8];
        vstore8(lower ? second : first, 0, moved);
        __local float4 *fours = (__local float4 *)scratch;
        TEAM_SYNC();
        fours[item] = vload4(0, moved);
        fours[TEAM + item] = vload4(1, moved);
        TEAM_SYNC();
        vstore4(fours[other], 0, moved);
        vstore4(fours[TEAM + other], 1, moved);
        const float8 got = vload8(0, moved);
        vstore8(lower ? first : got, 0, v + start);
        vstore8(lower ? got : second, 0, v + VALUES / 2 + start);
    }
}

// After two parts have exchanged halves, with `count` patches each, values are in the order [part][coefficient][patch]; this
// sorts them to [coefficient][part][patch]. All indices are constants: registers are renamed and no value is moved.
#define REGROUP(count, from, to)                                                          \
    {                                                                                     \
        float w[VALUES];                                                                  \
        _Pragma("unroll") for (int i = 0; i < VALUES; ++i) w[i] = v[i];                   \
        _Pragma("unroll") for (int i = 0; i < VALUES; ++i) {                              \
            const int apart = (i / (count) % 2 * (VALUES / 2)) + i / (2 * (count)) * (count) + i % (count); \
            const int together = i;                                                       \
            v[to] = w[from];                                                              \
        }                                                                                 \
    }

// v holds [coefficient][patch], before and after.
__attribute__((always_inline))
static inline void gather_stack(float *v, __local float *scratch, int item)
{
#if PARTS > 1
    swap_halves(v, scratch, item, item ^ 8, !(item & 8));
    REGROUP(DEPTH, apart, together);
#endif
#if PARTS > 2
    swap_halves(v, scratch, item, item ^ 16, !(item & 16));
    REGROUP(2 * DEPTH, apart, together);
#endif
}

__attribute__((always_inline))
static inline void scatter_stack(float *v, __local float *scratch, int item)
{
#if PARTS > 2
    REGROUP(2 * DEPTH, together, apart);
    swap_halves(v, scratch, item, item ^ 16, !(item & 16));
#endif
#if PARTS > 1
    REGROUP(DEPTH, together, apart);
    swap_halves(v, scratch, item, item ^ 8, !(item & 8));
#endif
}
#endif
