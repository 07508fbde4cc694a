// Predicts where a patch is in the next frame: it moves as the block it lies in.
//
// Constants: MOTION (whether there are other frames), PATCH, NEXT, FURTHEST (largest displacement of a match).
// Needs: common/frame_ring.h.

// Displacement and velocity, in pixels and pixels a frame.
typedef struct {
    int y;
    int x;
    int vy;
    int vx;
} Track;

// Predicts the next frame. (low, high) are the smallest and largest displacements at which the patch lies in the image.
static inline Track moved_on(Track track, int low_y, int high_y, int low_x, int high_x)
{
    const int most = max(FURTHEST - NEXT / 2, 0);
    track.y = clamp(track.y + track.vy, max(low_y, -most), min(high_y, most));
    track.x = clamp(track.x + track.vx, max(low_x, -most), min(high_x, most));
    return track;
}

#if MOTION
#define MOTIONS_ARGUMENT , __global const short2 *motions, int block_rows, int block_columns, int shift_y, int shift_x
#define MOTIONS motions, block_rows, block_columns, shift_y, shift_x
#define MOTIONS_OF __global const short2 *motions, int block_rows, int block_columns, int shift_y, int shift_x

// How the block moves in which the middle of a patch at (y, x) lies, in the frame in a slot, forward or backward in time.
static inline short2 block_motion_at(MOTIONS_OF, int slot, int backward, int y, int x)
{
    const int row = clamp((y + PATCH / 2 + shift_y) / PATCH, 0, block_rows - 1);
    const int column = clamp((x + PATCH / 2 + shift_x) / PATCH, 0, block_columns - 1);
    return motions[((size_t)(2 * slot + backward) * block_rows + row) * block_columns + column];
}

// The track with the velocity that its block has, from the frame in `slot` on. (y, x) is where the reference lies.
static inline Track with_block(Track track, MOTIONS_OF, int slot, int backward, int y, int x)
{
    const short2 moved = block_motion_at(MOTIONS, slot, backward, y + track.y, x + track.x);
    track.vy = moved.x;
    track.vx = moved.y;
    return track;
}

// Begins a track whose next frame may be missing: it then goes on as it came from the other side, if `known`.
static inline Track begin_with_block(MOTIONS_OF, int slot, int backward, int y, int x, bool known)
{
    Track track = {0, 0, 0, 0};
    if (known) {
        track = with_block(track, MOTIONS, slot, !backward, y, x);
        track.vy = -track.vy;
        track.vx = -track.vx;
    }
    return track;
}
#else
#define MOTIONS_ARGUMENT
#endif
