// LANES neighbours along x as one value: a vector on CPUs, a number where LANES is 1.

#define JOINED(a, b) a##b
#define WITH_LANES(type, lanes) JOINED(type, lanes)
#if LANES == 1
typedef float real;
typedef int whole;
#define AS_REAL as_float
#define AS_WHOLE as_int
// Of scalars a comparison is 0 or 1, of vectors 0 or -1.
#define ANY(condition) (condition)
#else
typedef WITH_LANES(float, LANES) real;
typedef WITH_LANES(int, LANES) whole;
#define AS_REAL WITH_LANES(as_float, LANES)
#define AS_WHOLE WITH_LANES(as_int, LANES)
#define ANY(condition) any(condition)
#endif

// One unaligned access each: PoCL splits vload and vstore into pairs, which made the search of patches three times slower.
typedef real unaligned_real __attribute__((aligned(4)));
#define AT(pointer) (*(__global const unaligned_real *)(pointer))
#define PUT(pointer) (*(__global unaligned_real *)(pointer))
