// The grid of reference patches along one axis: every STEP pixels from `first`, and `last` as the end, whether or
// not it falls on the grid, so that every pixel is covered (methods page, "grid").

// Pixels along one axis that `references` neighbouring ones and their matches can lie in; needs WINDOW.
#define REACHED(references) (((references) - 1) * STEP + PATCH + WINDOW - 1)

static inline int grid_position(int r, int first, int last)
{
    return min(first + r * STEP, last);
}

// Index of the first reference patch that covers pixel x, and of the last one.
static inline int grid_first_covering(int x, int first)
{
    const int behind = x - (PATCH - 1) - first;
    return behind <= 0 ? 0 : (behind + STEP - 1) / STEP;
}

static inline int grid_last_covering(int x, int first, int last, int count)
{
    return x >= last ? count - 1 : min((x - first) / STEP, count - 1);
}
