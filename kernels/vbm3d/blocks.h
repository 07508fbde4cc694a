// Blocks of a frame whose motion is measured, and the pairs of frames that are compared.
//
// Constants: PATCH, NEAREST (full width of the window that is searched), VECTOR.
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

// The costs of one comparison, of which `pitch` blocks make a row: how far apart in memory rows and blocks are, and displacements
// along y and x. Vectors hold the same displacement of neighbouring blocks; neighbouring work-items of a GPU take displacements
// of one block along x.
typedef struct {
    size_t row;
    size_t block;
    size_t dy;
    size_t dx;
} CostSteps;

static inline CostSteps cost_steps(int rows, int pitch)
{
#if VECTOR
    const size_t blocks = (size_t)rows * pitch;
    const CostSteps steps = {pitch, 1, NEAREST * blocks, blocks};
#else
    const size_t line = NEAREST * (size_t)pitch;
    const CostSteps steps = {NEAREST * line, NEAREST, line, 1};
#endif
    return steps;
}
