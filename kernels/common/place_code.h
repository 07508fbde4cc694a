// The position of a match relative to its reference, as one number. Codes sort by distance in time, then by displacement.
//
// Each of (dt, dy, dx) is mapped to an unsigned number, 0, -1, 1, -2, ... becoming 0, 1, 2, 3, ...; the reference itself is 0.
// |dt| <= 63, |dy| and |dx| <= 2047. NO_PLACE is no valid code.

#define NO_PLACE 0xffffffffu

static inline uint interleaved(int v)
{
    return (uint)((v << 1) ^ (v >> 31));
}

static inline int separated(uint u)
{
    return (int)(u >> 1) ^ -(int)(u & 1u);
}

static inline uint place_code(int dt, int dy, int dx)
{
    return interleaved(dt) << 24 | interleaved(dy) << 12 | interleaved(dx);
}

static inline int place_t(uint code)
{
    return separated(code >> 24);
}

static inline int place_y(uint code)
{
    return separated(code >> 12 & 0xfffu);
}

static inline int place_x(uint code)
{
    return separated(code & 0xfffu);
}
