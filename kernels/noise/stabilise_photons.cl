// Stabilise photon and read noise in place (generalised Anscombe transform): its standard deviation becomes 1.
// Makitalo and Foi, IEEE Transactions on Image Processing 22 (2013), equation 2.
//
// Arguments: offset (grey level without light); electrons per grey level; squared read noise plus 3/8, in electrons squared.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values.

#include "noise/values.h"

__kernel void stabilise_photons(VALUE_ARGUMENTS, float offset, float electrons, float added)
{
    EACH_VALUE(k)
        mine[k] = 2.0f * sqrt(fmax(fma(mine[k] - offset, electrons, added), 0.0f));
}
