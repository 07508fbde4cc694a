// Mixes the channels of arrays that search/pad_far made, so that their noise becomes independent.
//
// Reference: Goossens et al. 2010, section 2.5: the matrix is the inverse square root of the covariance.
// Grid: (pitch, pny, frames), one work-item a pixel.
// Constants: CHANNELS.
// Shapes: spread, whitened (CHANNELS, frames, pny, pitch); mixing (CHANNELS, CHANNELS).

#pragma OPENCL FP_CONTRACT OFF

#include "common/far.h"

__kernel void whiten_channels(__global const float *spread, int frames, int pny, int pitch,
                              __global const float *mixing, __global float *whitened)
{
    const int px = get_global_id(0);
    const int py = get_global_id(1);
    if (px >= pitch || py >= pny)
        return;
    const size_t at = ((size_t)get_global_id(2) * pny + py) * pitch + px;
    const size_t size = (size_t)frames * pny * pitch;
    for (int i = 0; i < CHANNELS; ++i) {
        float mixed = 0.0f;
        bool outside = false;
        for (int j = 0; j < CHANNELS; ++j) {
            const float value = spread[j * size + at];
            mixed = fma(mixing[i * CHANNELS + j], value, mixed);
            outside |= value >= FAR;
        }
        whitened[i * size + at] = outside ? FAR : mixed;
    }
}
