// Arguments that only some builds of the kernels that filter groups have; others are in groups_in_*.h and sigma_map.h.

#if WIENER
#define BASIC_ARGUMENT __global const float *basic,
#else
#define BASIC_ARGUMENT
#endif
// The first spectrum of the noise, and the frames that share each: those of a channel, or all.
#if SPECTRUM
#define SPECTRUM_ARGUMENT int first_spectrum, int spectrum_frames,
#else
#define SPECTRUM_ARGUMENT
#endif
