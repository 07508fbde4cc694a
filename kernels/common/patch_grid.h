// The grid of reference patches along one axis: every STEP pixels from `first` on, and one at `last`, whether or not that is on
// the grid. So every pixel is covered (methods page, "grid").
//
// Constants: PATCH, STEP; WINDOW for REACHED.

// Length, in pixels along one axis, of the region that holds `references` neighbouring reference patches and all their matches.
#define REACHED(references) (((references) - 1) * STEP + PATCH + WINDOW - 1)

static inline int grid_position(int r, int first, int last)
{
    return min(first + r * STEP, last);
}

// Indices of the first and the last reference patch that cover pixel x.
static inline int grid_first_covering(int x, int first)
{
    const int behind = x - (PATCH - 1) - first;
    return behind <= 0 ? 0 : (behind + STEP - 1) / STEP;
}

static inline int grid_last_covering(int x, int first, int last, int count)
{
    return x >= last ? count - 1 : min((x - first) / STEP, count - 1);
}

// Arguments of the searches: the padded tile, whose pixel (t0, z0, y0, x0) is the first one, and the grid along both axes.
#define TILE_ARGUMENTS \
    __global const float *padded, int pnz, int pny, int pitch, int t0, int z0, int y0, int x0, int nz, \
    int first_y, int last_y, int rows, int first_x, int last_x, int columns
