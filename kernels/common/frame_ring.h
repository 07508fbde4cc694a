// Frames of a video lie in a ring buffer: frame t is in slot t modulo `ring`. A filter never looks further than one ring length.

// Slot of the frame that lies `ahead` frames after the one in slot `first`. `ahead` may be negative; |ahead| <= ring.
static inline int ring_slot(int first, int ahead, int ring)
{
    const int slot = first + ahead;
    return slot < 0 ? slot + ring : slot >= ring ? slot - ring : slot;
}

// Converts grey levels of one frame to those of another: value * scale + shift. `noise` is the standard deviation of the noise
// after that; 0 marks a frame that must not be used, a number below 0 one
// through which motion is followed, but which a nearer frame repeats.
typedef struct {
    float scale;
    float shift;
    float noise;
} Link;

static inline Link frame_link(__global const float *links, int which)
{
    const Link link = {links[3 * which], links[3 * which + 1], links[3 * which + 2]};
    return link;
}
