// Predicts where a patch is in the next frame, at constant velocity.
//
// Constants: PATCH, NEAREST, COARSE, NEXT, FURTHEST (largest displacement of a match).

// Largest displacement of the coarse search, whose displacements are multiples of COARSE.
#define COARSEST (NEAREST / 2 / COARSE * COARSE)

// Displacement and velocity, in pixels and pixels a frame.
typedef struct {
    int y;
    int x;
    int vy;
    int vx;
    bool begun; // whether the patch was found in any frame yet
} Track;

static inline Track begin_track(void)
{
    const Track track = {0, 0, 0, 0, false};
    return track;
}

// Predicts the next frame. (low, high) are the smallest and largest displacements at which the patch lies in the image.
static inline Track moved_on(Track track, int low_y, int high_y, int low_x, int high_x)
{
    const int most = max(FURTHEST - NEXT / 2, 0);
    track.y = clamp(track.y + track.vy, max(low_y, -most), min(high_y, most));
    track.x = clamp(track.x + track.vx, max(low_x, -most), min(high_x, most));
    return track;
}

// Updates the track with the displacement at which the patch was found, `frames` frames from the reference; `was` is the track
// one frame before.
static inline Track found_at(Track was, int y, int x, int frames)
{
    const int since = was.begun ? 1 : frames;
    const Track track = {y, x, (y - was.y) / since, (x - was.x) / since, true};
    return track;
}
