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
    __local float *levels;     // what in its frame is as bright as the first pixel of the reference
    __local float *scales;     // of the link of the frame it lies in, see common/frame_ring.h
    __local float *inverses;   // 1 / noise of that link
#endif
} TeamMatches;

// Keeps patch k of the group of the reference at (y, x), whose first pixel is `level`.
static inline void keep_match(TeamMatches matches, int k, bool found, int place, GroupFrame frame, SigmaMap map,
                              __global const float *levels, float level, int pny, int pitch, int y, int x)
{
    const int4 offset = place_offset(place);
    const float s = sigma_factor(map, offset.z, offset.w);
    matches.places[k] = found ? place : NO_PATCH;
#if VIDEO
    const Link link = frame_link(levels, frame.centre_link + offset.x);
    matches.aheads[k] = pixels_ahead(frame, offset, pitch);
    matches.sums[k] = offset.x < frame.earliest ? -1 : sums_place(frame, offset, pny, pitch, y, x);
    matches.levels[k] = (level - link.shift) / link.scale;
    matches.scales[k] = link.scale;
    matches.inverses[k] = 1.0f / link.noise;
    matches.variances[k] = link.noise * link.noise * s * s;
#else
    if (SIGMA_VARIES)
        matches.variances[k] = s * s;
#endif
}

// Patches of the group: the largest power of two that were found, or none. Those that were found come first.
static inline int group_size(TeamMatches matches)
{
    int size = 0;
    #pragma unroll
    for (int most = 1; most <= NEIGHBOURS; most *= 2)
        size = matches.places[most - 1] != NO_PATCH ? most : size;
    return size;
}

// Root mean square of sigma over the patches.
static inline float group_sigma(TeamMatches matches, float frame_sigma, int size)
{
    if (!SIGMA_VARIES)
        return frame_sigma;
    float variance = 0.0f;
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        variance += k < size ? matches.variances[k] : 0.0f;
    return (VIDEO ? 1.0f : frame_sigma) * sqrt(variance / max(size, 1));
}
