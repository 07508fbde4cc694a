// Vectors of LANES floats and of as many keys; plain numbers where LANES is 1.
//
// Constants: LANES (1, 4, 8, 16).

#include "common/lanes.h"

typedef real REAL;
#define LOAD(pointer) AT(pointer)
#if LANES == 1
typedef uint KEY;
#define AS_KEY(v) as_uint(v)
#define STORE_LANES(v, to) (*(to) = (v))
#else
typedef WITH_LANES(uint, LANES) KEY;
#define AS_KEY(v) WITH_LANES(as_uint, LANES)(v)
#define STORE_LANES(v, to) WITH_LANES(vstore, LANES)(v, 0, to)
#endif
