// Lists sorted by min and max of 64-bit numbers (MINIMA = 1).
//
// Intel's CPU runtime 2026.2 (2026.22.10), optimised, on processors with AVX-512 or with CL_CONFIG_CPU_TARGET_ARCH=skx: the
// compiler crashes ("Machine InstCombiner"); it builds without MINIMA, with -cl-opt-disable, with numbers of 32 bits and with
// CL_CONFIG_LLVM_OPTIONS=-disable-x86-scalar-to-vector. Which lists crash it is a matter of luck.
// Grid: (64 * groups).
static inline void insert(ulong *best, ulong one)
{
    for (int k = 0; k < 8; ++k) {
#if MINIMA
        const ulong kept = min(best[k], one);
        one = max(best[k], one);
        best[k] = kept;
#else
        const ulong kept = best[k];
        const bool before = one < kept;
        best[k] = before ? one : kept;
        one = before ? kept : one;
#endif
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void least_of_longs(__global const ulong *in, int count, __global ulong *out)
{
    const int item = get_global_id(0), items = get_global_size(0);
    ulong best[8];
    for (int k = 0; k < 8; ++k)
        best[k] = in[8 * item + k];
    #pragma unroll
    for (int k = 0; k < 8; ++k)
        if (best[7] == ULONG_MAX) {
            ulong more[8];
            for (int j = 0; j < 8; ++j)
                more[j] = ULONG_MAX;
            for (int i = 0; i < count; ++i)
                for (int d = 0; d < 3; ++d)
                    insert(more, in[8 * items + (3 * i + d) * items + item]);
            insert(best, more[k]);
        }
    for (int k = 0; k < 8; ++k)
        out[8 * item + k] = best[k];
}
