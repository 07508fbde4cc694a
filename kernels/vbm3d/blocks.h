// Blocks of a frame whose motion is measured, and the pairs of frames that are compared.
//
// Constants: PATCH.
// Needs: common/frame_ring.h.

typedef struct {
    int own; // number of the frame whose blocks move
    int dt;  // from there to the other one
    Link link;
} BlockPair;

// Comparison `which`: forward, then backward in time, of each two neighbouring frames. Its noise is 0 where they are not alike.
static inline BlockPair block_pair(__global const float *links, int first_pair, int which, int frames_before, int frames_after)
{
    const int backward = which & 1;
    const int own = which / 2 + backward;
    const int centre = (first_pair + own) * (frames_before + 1 + frames_after) + frames_before;
    const Link none = {1.0f, 0.0f, 0.0f};
    const bool wanted = backward ? frames_before > 0 : frames_after > 0;
    const bool alone = !wanted || frame_link(links, centre).noise <= 0.0f;
    const BlockPair pair = {own, backward ? -1 : 1, alone ? none : frame_link(links, centre + (backward ? -1 : 1))};
    return pair;
}

// Whether a block at this position lies within an axis of a frame.
static inline bool inside(int at, int length)
{
    return at >= 0 && at + PATCH <= length;
}
