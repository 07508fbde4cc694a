// Frames of a video lie in a ring: frame t in slot t modulo `ring`. What a filter looks at is never more than a ring long.

// Slot of the frame `ahead` frames from the one in slot `first`; no more than a ring away, either way.
static inline int ring_slot(int first, int ahead, int ring)
{
    const int slot = first + ahead;
    return slot < 0 ? slot + ring : slot >= ring ? slot - ring : slot;
}

// How the grey levels of one frame become those of another: value * scale + shift; noise is then the standard
// deviation, 0 where the frame is not to be used.
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
