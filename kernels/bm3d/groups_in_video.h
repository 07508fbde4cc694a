// Where the groups of VBM3D lie: patches of many frames, which lie in rings and may differ in brightness.
//
// groups_in_images.h defines the same names for BM3D, so that the kernels that filter groups need not tell them apart.

#include "common/frame_ring.h"
#include "common/place_code.h"

#define NO_PATCH INT_MIN

// Arguments of the kernel, and their names. A patch from before `earliest`, as a dt, is not added to the sums.
#define RING_ARGUMENTS \
    int ring, int first_slot, int sum_ring, int first_sum, int frames_before, int frames_after, int earliest,
#define RINGS ring, first_slot, sum_ring, first_sum, frames_before, frames_after, earliest,
#define PLACES_ARGUMENT __global const uint *codes_found
#define PLACES codes_found
#define WEIGHTS_ARGUMENT

typedef struct {
    size_t first;         // its first pixel in the ring of images
    float sigma;          // of the noise in what is filtered, in grey levels; 0: there is nothing to filter
    float matched_sigma;  // of the noise in what was searched; the same
    int plane;
    int channel;
    int ring;             // frames that the ring of images holds
    int slot;             // of this frame
    int sum_ring;         // the same of the ring of sums
    int sum_slot;
    int centre_link;      // link of this frame with itself
    int earliest;
} GroupFrame;

// Frame `frame` of all channels together, with `matched` frames a channel.
static inline GroupFrame group_frame(RING_ARGUMENTS int frame, int matched, size_t plane,
                                     __global const float *levels, __global const float *matched_levels)
{
    const int slot = ring_slot(first_slot, frame % matched, ring);
    const int sum_slot = ring_slot(first_sum, frame % matched, sum_ring);
    const int links_a_frame = frames_before + 1 + frames_after;
    const int centre_link = frame * links_a_frame + frames_before;
    const GroupFrame found = {
        ((size_t)(frame / matched) * ring + slot) * plane,
        frame_link(levels, centre_link).noise,
        frame_link(matched_levels, frame % matched * links_a_frame + frames_before).noise,
        (int)plane, frame / matched, ring, slot, sum_ring, sum_slot, centre_link, earliest,
    };
    return found;
}

// Place of the match with number `at`, as one number; that of the reference where `found` is false.
static inline int match_place(__global const uint *codes_found, size_t at, uint key, bool found)
{
    return found ? (int)codes_found[at] : 0;
}

// (dt, dz, dy, dx) of a place.
static inline int4 place_offset(int place)
{
    const uint code = place;
    return (int4)(place_t(code), 0, place_y(code), place_x(code));
}

static inline bool in_own_frame(int place)
{
    return place >> 24 == 0;  // see common/place_code.h
}

// Distance in memory from the reference to a match, in a ring of images with rows of `line` pixels.
static inline int pixels_ahead(GroupFrame frame, int4 offset, int line)
{
    return (ring_slot(frame.slot, offset.x, frame.ring) - frame.slot) * frame.plane + offset.z * line + offset.w;
}

// Where the sums of a match begin, whose reference is at (y, x); the weights lie a plane further.
static inline long sums_place(GroupFrame frame, int4 offset, int pny, int pitch, int y, int x)
{
    const int slot = ring_slot(frame.sum_slot, offset.x, frame.sum_ring);
    return (((long)frame.channel * frame.sum_ring + slot) * 2 * pny + y + offset.z) * pitch + x + offset.w;
}
