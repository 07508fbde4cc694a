// What the kernels that filter groups have in common: their arguments, some of which only some builds have, and the headers.
//
// Needs: REAL; common/search_group.h or common/float8_rows.h.

#include "common/patch_grid.h"
#include "common/match_key.h"
#if VIDEO
#include "bm3d/groups_in_video.h"
#else
#include "bm3d/groups_in_images.h"
#endif
#include "bm3d/sigma_map.h"
#include "bm3d/patch_transform.h"
#include "bm3d/stack_transform.h"
#include "bm3d/shrinkage.h"
#include "bm3d/common_part.h"
#include "bm3d/shared_noise.h"

#define TILE_X REACHED(GROUP_X)
#define TILE_Y REACHED(GROUP_Y)

// The first spectrum of the noise, and the frames that share each: those of a channel, or all.
#if SPECTRUM
#define SPECTRUM_ARGUMENT int first_spectrum, int spectrum_frames,
#else
#define SPECTRUM_ARGUMENT
#endif
#define GROUP_ARGUMENTS \
    __global const float *noisy, BASIC_ARGUMENT int pny, int pitch, int y0, int x0, \
    int first_y, int last_y, int rows, int first_x, int last_x, int columns, int groups_x, \
    RING_ARGUMENTS PLACES_ARGUMENT, __global const uint *keys, int matched, \
    __global const float *levels, __global const float *matched_levels, MAP_ARGUMENTS \
    float similar, float threshold, float common, __global const float *kaiser, \
    __global const float *correlation, SPECTRUM_ARGUMENT \
    float scale, float largest, float units, __global int *slabs WEIGHTS_ARGUMENT
