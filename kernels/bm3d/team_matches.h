// What a team keeps in local memory about the patches of its group.
//
// Needs: NEIGHBOURS, VIDEO, groups_in_images.h or groups_in_video.h, sigma_map.h.

// Whether patches of one group may differ in sigma.
#define SIGMA_VARIES (SIGMA_MAP || VIDEO)

typedef struct {
    __local int *places;       // see place_offset; NO_PATCH beyond the last match
    __local float *variances;  // of the noise; with SIGMA_VARIES
#if VIDEO
    __local int *aheads;       // see pixels_ahead
    __local long *sums;        // see sums_place; -1 where nothing is to be added
    __local float *scales;     // the link of the frame it lies in, see common/frame_ring.h
    __local float *shifts;
    __local float *noises;
#endif
} TeamMatches;

// Keeps patch k of the group of the reference at (y, x).
static inline void keep_match(TeamMatches matches, int k, bool found, int place, GroupFrame frame, SigmaMap map,
                              __global const float *levels, int pny, int pitch, int y, int x)
{
    const int4 offset = place_offset(place);
    const float s = sigma_factor(map, offset.z, offset.w);
    matches.places[k] = found ? place : NO_PATCH;
#if VIDEO
    const Link link = frame_link(levels, frame.centre_link + offset.x);
    matches.aheads[k] = pixels_ahead(frame, offset, pitch);
    matches.sums[k] = offset.x < frame.earliest ? -1 : sums_place(frame, offset, pny, pitch, y, x);
    matches.scales[k] = link.scale;
    matches.shifts[k] = link.shift;
    matches.noises[k] = link.noise;
    matches.variances[k] = link.noise * link.noise * s * s;
#else
    if (SIGMA_VARIES)
        matches.variances[k] = s * s;
#endif
}

// Patches of the group: the largest power of two that were found, or none.
static inline int group_size(TeamMatches matches)
{
    int found = 0;
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        found += matches.places[k] != NO_PATCH;
    return found > 0 ? 1 << (31 - clz(found)) : 0;
}

// Root mean square of sigma over the patches.
static inline float group_sigma(TeamMatches matches, float frame_sigma, int size)
{
    if (!SIGMA_VARIES)
        return frame_sigma;
    float variance = 0.0f;
    for (int k = 0; k < size; ++k)
        variance += matches.variances[k];
    return (VIDEO ? 1.0f : frame_sigma) * sqrt(variance / max(size, 1));
}
