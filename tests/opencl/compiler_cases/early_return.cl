// A work-group that leaves before a barrier (EARLY = 1), and two exits after it.
//
// PoCL 3.0 (LLVM 14) and 3.1 (LLVM 15), optimised: wrong values in rows that do not leave, right without EARLY and with
// -cl-opt-disable. PoCL copies what follows a barrier that may be skipped once for each way there, and then takes the exits of
// the first work-item for those of all. Mended in August 2026: pocl/pocl#2269.
// Grid: (8 * groups, 2, rows).
__kernel __attribute__((reqd_work_group_size(8, 2, 1)))
void early_return(__global const float *levels, __global const float *image, int n, int width, __global float *out)
{
    __local float offers[8];
    const int item = get_local_id(0), second = get_local_id(1), x = get_global_id(0), row = get_global_id(2);
#if EARLY
    if (levels[row] <= 0.0f)
        return;
#endif
    float best = image[x + second];
    if (second)
        offers[item] = best;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (second)
        return;
    best += offers[item];
    if (best > 5.0f)
        for (int d = 0; d < n; ++d)
            best += image[x + d];
    if (x < width)
        out[row * width + x] = best;
}
