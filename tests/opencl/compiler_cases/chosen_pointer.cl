// A pointer into an array of a work-item that differs from item to item (CHOSEN = 1), in a loop with a barrier.
//
// Intel's CPU runtime 2026.2 (2026.22.10), optimised: wrong values; right without CHOSEN, with -cl-opt-disable, and where
// work-items are not made lanes of vectors (CL_CONFIG_CPU_VECTORIZER_MODE=1). The pointer of the first lane is taken for those of
// all (right again with CL_CONFIG_LLVM_OPTIONS=-vplan-enable-soa-phis=0). Loops over `v[i] = c ? x : v[i]; w[i] = c ? w[i] : x`
// become such pointers by themselves: c is decided once, before the loop, and where both ways meet again, x is stored.
// Grid: (16).
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void chosen_pointer(__global const float *in, __global float *out)
{
    const int item = get_local_id(0);
    const bool lower = !(item & 8);
    float v[4];
    for (int i = 0; i < 4; ++i)
        v[i] = -1.0f;
#if CHOSEN
    #pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const float got = in[16 * i + item];
        float *one = lower ? v + 2 + i : v + i;
        *one = got;
    }
#else
    const float2 first = vload2(0, v), second = vload2(0, v + 2), got = (float2)(in[item], in[16 + item]);
    barrier(CLK_LOCAL_MEM_FENCE);
    vstore2(lower ? first : got, 0, v);
    vstore2(lower ? got : second, 0, v + 2);
#endif
    for (int i = 0; i < 4; ++i)
        out[16 * i + item] = v[i];
}
