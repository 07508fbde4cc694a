// Adds to a float in global memory; the order of additions, and so the last bits, change from run to run.
//
// ATOMIC_FLOAT: 1 for NVIDIA's instruction (OpenCL C 1.2 has none), 2 for cl_ext_float_atomics (OpenCL C 3.0), 0 for
// compare-and-exchange, which every device has.

static inline void atomic_add_float(__global float *sum, float value)
{
#if ATOMIC_FLOAT == 1
    asm volatile("red.global.add.f32 [%0], %1;" :: "l"(sum), "f"(value) : "memory");
#elif ATOMIC_FLOAT == 2
    atomic_fetch_add_explicit((volatile __global atomic_float *)sum, value, memory_order_relaxed, memory_scope_device);
#else
    volatile __global uint *bits = (volatile __global uint *)sum;
    // A guess: a plain read would race with what others write.
    uint seen = 0u;
    uint expected;
    do {
        expected = seen;
        seen = atomic_cmpxchg(bits, expected, as_uint(as_float(expected) + value));
    } while (seen != expected);
#endif
}
