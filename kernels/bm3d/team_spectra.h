// Loads the patches that an item holds, a column of each, and transforms them.
//
// Constants: LOCAL_TILE, how many images are copied to local memory first: none, the noisy one, or the basic estimate too.
// Needs: PATCH, WINDOW, DEPTH, TILE_X, TILE_Y, ITEMS, patch_transform.h, team.h, team_matches.h.

#if LOCAL_TILE
#define NOISY_SPACE __local
#define NOISY_LINE TILE_X
#else
#define NOISY_SPACE __global
#define NOISY_LINE pitch
#endif
#if LOCAL_TILE > 1
#define BASIC_SPACE __local
#define BASIC_LINE TILE_X
#else
#define BASIC_SPACE __global
#define BASIC_LINE pitch
#endif

// How far the corner of a patch lies from that of the reference; what in its frame is as bright as the first pixel of the
// reference, and the factor from there to units of sigma in the reference's frame.
#if VIDEO
#define AHEAD(d, line) matches.aheads[part * DEPTH + d]
#define LEVEL(d) matches.levels[part * DEPTH + d]
#define FACTOR(d) (inverse * matches.scales[part * DEPTH + d])
#else
#define AHEAD(d, line) pixels_ahead(frame, held[d], line)
#define LEVEL(d) level
#define FACTOR(d) inverse
#endif

// Transforms what an item holds of each patch.
#define TRANSFORM_ALL(transform, v)                                                                          \
    _Pragma("unroll") for (int d = 0; d < DEPTH; ++d) {                                                      \
        float column[8];                                                                                     \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) column[i] = v[i * DEPTH + d];                          \
        transform(column);                                                                                   \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) v[i * DEPTH + d] = column[i];                          \
    }

// Loads column `lane` of the patches of this part and transforms them: v holds [coefficient][patch]. A macro, since the
// pixels may be in local or in global memory. A patch that is not in the group is 0: the reference, times 0.
#define LOAD_SPECTRA(v, pixels, line)                                                                        \
    _Pragma("unroll") for (int d = 0; d < DEPTH; ++d) {                                                      \
        float column[8];                                                                                     \
        const bool grouped = part * DEPTH + d < size;                                                        \
        const int corner = (y - top) * (line) + x - left + (grouped ? AHEAD(d, line) : 0) + lane;            \
        const float factor = grouped ? FACTOR(d) : 0.0f;                                                     \
        _Pragma("unroll") for (int i = 0; i < 8; ++i)                                                        \
            column[i] = (((pixels) + corner)[i * (line)] - LEVEL(d)) * factor;                               \
        transform_forward(column);                                                                           \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) v[i * DEPTH + d] = column[i];                          \
    }                                                                                                        \
    transpose(v, my_scratch, lane);                                                                          \
    TRANSFORM_ALL(transform_forward, v)
