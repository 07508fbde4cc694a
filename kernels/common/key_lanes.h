// Vectors of LANES floats and of as many keys; plain numbers where LANES is 1.
//
// Constants: LANES (1, 4, 8, 16).

#if LANES == 1
typedef float REAL;
typedef uint KEY;
#define LOAD(pointer) (*(pointer))
#define AS_KEY(v) as_uint(v)
#define ANY(condition) (condition)
#define STORE_LANES(v, to) (*(to) = (v))
#else
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef JOIN(float, LANES) REAL;
typedef JOIN(uint, LANES) KEY;
// One unaligned load: PoCL splits vload into pairs, which made the search of patches three times slower.
typedef REAL UNALIGNED __attribute__((aligned(4)));
#define LOAD(pointer) (*(__global const UNALIGNED *)(pointer))
#define AS_KEY(v) JOIN(as_uint, LANES)(v)
#define ANY(condition) any(condition)
#define STORE_LANES(v, to) JOIN(vstore, LANES)(v, 0, to)
#endif
