// Stabilise speckle in place: the noise of its logarithm does not depend on the mean.
//
// Arguments: their lower limit before the logarithm, above 0.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values.

#include "noise/values.h"

__kernel void stabilise_speckle(VALUE_ARGUMENTS, float least)
{
    EACH_VALUE(k)
        mine[k] = M_LN2_F * log2(fmax(mine[k], least)); // three times as fast as log on PoCL
}
