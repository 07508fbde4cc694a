// Exchange among the work-items of a row, which a warp of 32 holds wholly (NVIDIA).

// The value of an item so many places to the right; any value where the warp ends.
static inline float from_right(float value, int far)
{
    float found;
    asm volatile("shfl.sync.down.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(found) : "f"(value), "r"(far));
    return found;
}
