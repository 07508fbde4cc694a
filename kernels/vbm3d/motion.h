// Where a patch will be in the next frame, if it moves on as it did.
//
// Needs: PATCH, NEAREST, COARSE, NEXT, FURTHEST (displacement that no match may exceed).

// The largest of the displacements that are tried first: none at all is among them.
#define COARSEST (NEAREST / 2 / COARSE * COARSE)

typedef struct {
    int y;
    int x;
    int vy;
    int vx;
    bool begun;
} Track;

static inline Track begin_track(void)
{
    const Track track = {0, 0, 0, 0, false};
    return track;
}

// Moves on by a frame. (low, high) are the smallest and largest displacements of patches that lie in the image.
static inline Track moved_on(Track track, int low_y, int high_y, int low_x, int high_x)
{
    const int most = max(FURTHEST - NEXT / 2, 0);
    track.y = clamp(track.y + track.vy, max(low_y, -most), min(high_y, most));
    track.x = clamp(track.x + track.vx, max(low_x, -most), min(high_x, most));
    return track;
}

// Takes over where a patch was found, `frames` frames from the reference; `was` is the track a frame ago.
static inline Track found_at(Track was, int y, int x, int frames)
{
    const int since = was.begun ? 1 : frames;
    const Track track = {y, x, (y - was.y) / since, (x - was.x) / since, true};
    return track;
}
