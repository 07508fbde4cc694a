// The type of grey levels that are small integers: 8 or 16 BITS, SIGNED (1) or not (0).
#if BITS == 8 && SIGNED
typedef char Level;
#elif BITS == 8
typedef uchar Level;
#elif SIGNED
typedef short Level;
#else
typedef ushort Level;
#endif

// Exact in float.
#define LOWEST ((float)(SIGNED ? -(1 << (BITS - 1)) : 0))
#define HIGHEST ((float)((1 << (BITS - SIGNED)) - 1))
