// What the patches of a group have in common: the first coefficient along the stack of each coefficient of a patch.
//
// Constants: PATCH.

// Below this energy of a coefficient, in units of the noise, what the patches of a group have in common counts as noise.
#define FLAT 1.3f

// The threshold, or the strength of a Wiener filter, of what the patches of a group have in common. It is more likely signal than
// what makes them differ, unless they have noise in common or show nothing but noise: at least three patches, and half of all,
// must be `others` from other frames, and there must be enough `energy` in the PATCH * PATCH - 1 coefficients.
static inline float common_limit(int others, int size, float energy, float threshold, float common)
{
    const bool enough = others >= 3 && 2 * others >= size && energy >= FLAT * (PATCH * PATCH - 1);
    return enough ? common : threshold;
}
