// Compares a patch with strips of candidates: neighbouring displacements whose rows are loaded once for all of them.
//
// Reference: Davy and Ehret 2020, section 4.2.
// Constants: PATCH. Macros, since the sizes of arrays differ from call to call; they use `patch`, `pitch`, `bias` and `link` of the
//   kernel.

// Strips of `cell` displacements that cover `width`, along one axis.
#define CELLS(width, cell) (((width) - 1) / (cell) + 1)

// Sums of squared differences for a strip of height * width patches, the first of which has its corner at `pixels`;
// `alike` brings a pixel to the grey levels of the reference.
#define COMPARE_STRIP(sums, height, width, pixels, alike)                                               \
    {                                                                                                   \
        _Pragma("unroll") for (int k = 0; k < (height); ++k) {                                          \
            _Pragma("unroll") for (int d = 0; d < (width); ++d) sums[k][d] = 0.0f;                      \
        }                                                                                               \
        _Pragma("unroll") for (int r = 0; r < (height) - 1 + PATCH; ++r) {                              \
            float line[(width) - 1 + PATCH];                                                            \
            _Pragma("unroll") for (int j = 0; j < (width) - 1 + PATCH; ++j)                             \
                line[j] = alike((pixels)[r * pitch + j]);                                               \
            _Pragma("unroll") for (int k = 0; k < (height); ++k) {                                      \
                if (r >= k && r - k < PATCH) {                                                          \
                    _Pragma("unroll") for (int d = 0; d < (width); ++d) {                               \
                        _Pragma("unroll") for (int j = 0; j < PATCH; ++j) {                             \
                            const float e = patch[(r - k) % PATCH][j] - line[d + j];                    \
                            sums[k][d] = fma(e, e, sums[k][d]);                                         \
                        }                                                                               \
                    }                                                                                   \
                }                                                                                       \
            }                                                                                           \
        }                                                                                               \
    }

#define UNCHANGED(pixel) (pixel)
#define LINKED(pixel) fma(pixel, link.scale, link.shift)

// Inserts the candidates of a strip, at displacements (top + k, left + d), into a list of `count`; only those
// that are `wanted`.
#define OFFER_STRIP(best, count, sums, height, width, dt, top, left, wanted)                            \
    _Pragma("unroll") for (int k = 0; k < (height); ++k) {                                              \
        _Pragma("unroll") for (int d = 0; d < (width); ++d) {                                           \
            const CANDIDATE one = candidate(sums[k][d], dt, (top) + k, (left) + d, bias);               \
            insert_candidate(best, count, (wanted) ? one : NO_CANDIDATE);                               \
        }                                                                                               \
    }
