// The type of integer grey levels.
//
// Constants: BITS = 8 or 16; SIGNED = 1 or 0.
#if BITS == 8 && SIGNED
typedef char Level;
#elif BITS == 8
typedef uchar Level;
#elif SIGNED
typedef short Level;
#else
typedef ushort Level;
#endif

// Smallest and largest grey level; both are exact in float.
#define LOWEST ((float)(SIGNED ? -(1 << (BITS - 1)) : 0))
#define HIGHEST ((float)((1 << (BITS - SIGNED)) - 1))
