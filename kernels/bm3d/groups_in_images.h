// Where the groups of BM3D lie: all patches of a group are in the frame of its reference.
//
// groups_in_video.h defines the same names for VBM3D, so that the kernels that filter groups need not tell them apart.
// Needs: common/match_key.h.

#define NO_PATCH INT_MIN

// Arguments of the kernel, and their names: frames of images lie one after the other, with no ring.
#define RING_ARGUMENTS
#define RINGS
#define PLACES_ARGUMENT __global const int4 *offsets
#define PLACES offsets
#define WEIGHTS_ARGUMENT , __global int *weights

typedef struct {
    size_t first;         // its first pixel in the images
    float sigma;          // of the noise in what is filtered, in grey levels
    float matched_sigma;  // of the noise in what was searched
} GroupFrame;

// Frame `frame` of all channels together, with `matched` frames a channel.
static inline GroupFrame group_frame(int frame, int matched, size_t plane,
                                     __global const float *levels, __global const float *matched_levels)
{
    const GroupFrame found = {frame * plane, levels[frame], matched_levels[frame % matched]};
    return found;
}

// Place of the match with this key, as one number; that of the reference where `found` is false, since a key that is no
// match may point beyond the table.
static inline int match_place(__global const int4 *offsets, size_t at, uint key, bool found)
{
    const int4 offset = offsets[found ? key & INDEX_MASK : 0u];
    return (offset.z << 16) | (offset.w & 0xffff);
}

// (dt, dz, dy, dx) of a place.
static inline int4 place_offset(int place)
{
    return (int4)(0, 0, place >> 16, (short)(place & 0xffff));
}

// Distance in memory from the reference to a match, in an image with rows of `line` pixels.
static inline int pixels_ahead(GroupFrame frame, int4 offset, int line)
{
    return offset.z * line + offset.w;
}
