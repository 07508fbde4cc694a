// Loads the patches of a group and transforms them, for CPUs: a vector is a row of eight pixels.
//
// The transform along y works on vectors as they are; a transposition in registers brings x there.
// Needs: REAL = float8, NEIGHBOURS, VIDEO, common/float8_rows.h (which transposes), patch_transform.h, groups_in_images.h or groups_in_video.h.

// The link of the frame that a patch lies in, its pixels in the grey levels of the reference's frame, and the variance
// of its noise, where the map of sigma has the factor s.
#if VIDEO
typedef Link Alike;
#define ALIKE(link, pixels) ((pixels) * (link).scale + (link).shift)
#define ALIKE_LINK(offset) frame_link(levels, frame.centre_link + (offset).x)
#define PATCH_VARIANCE(s, link) ((s) * (s) * (link).noise * (link).noise)
#else
typedef int Alike;
#define ALIKE(link, pixels) (pixels)
#define ALIKE_LINK(offset) 0
#define PATCH_VARIANCE(s, link) ((s) * (s))
#endif

// v holds [row of the spectrum][patch].
static inline void load_spectra(float8 *v, __global const float *pixels, const int *there, const Alike *alike, int pitch,
                                float level, float inverse, int size)
{
    for (int k = 0; k < size; ++k) {
        float8 patch[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            patch[i] = (ALIKE(alike[k], ROW(pixels + there[k] + i * pitch)) - level) * inverse;
        transform_forward(patch);
        transpose(patch);
        transform_forward(patch);
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i * NEIGHBOURS + k] = patch[i];
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        for (int k = size; k < NEIGHBOURS; ++k)
            v[i * NEIGHBOURS + k] = (float8)0.0f;
}
