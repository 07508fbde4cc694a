// Exact unbiased inverse of stabilise_speckle.cl, in place: the intensity whose logarithms have these means.
//
// Arguments: bias = digamma(looks) - log(looks), the mean logarithm of the noise.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values.

#include "noise/values.h"

__kernel void inverse_speckle(VALUE_ARGUMENTS, float bias)
{
    EACH_VALUE(k)
        mine[k] = exp(mine[k] - bias);
}
