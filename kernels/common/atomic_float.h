// Adds a float to a value in global memory. The order of additions is not fixed, so the last bits change from run to run.
//
// Constants: ATOMIC_FLOAT = 1: NVIDIA's instruction, since OpenCL C 1.2 has none; 2: cl_ext_float_atomics (OpenCL C 3.0);
//   0: compare-and-exchange, which every device has.

static inline void atomic_add_float(__global float *sum, float value)
{
#if ATOMIC_FLOAT == 1
    asm volatile("red.global.add.f32 [%0], %1;" :: "l"(sum), "f"(value) : "memory");
#elif ATOMIC_FLOAT == 2
    atomic_fetch_add_explicit((volatile __global atomic_float *)sum, value, memory_order_relaxed, memory_scope_device);
#else
    volatile __global uint *bits = (volatile __global uint *)sum;
    // Start from a guess: a plain read would race with other work-items.
    uint seen = 0u;
    uint expected;
    do {
        expected = seen;
        seen = atomic_cmpxchg(bits, expected, as_uint(as_float(expected) + value));
    } while (seen != expected);
#endif
}
