// Which reference patches a work-group of a search serves: a rectangle of REFERENCES_X times REFERENCES_Y neighbours.
//
// Where the last reference of an axis is not on the regular grid, one more work-group is added whose last reference is that
// one. Its other references are computed and discarded.

// Index along the axis of the reference patch that work-item `item` serves, or -1 if it serves none.
static inline int group_reference(int group, int item, int per_group, int regular, int count)
{
    const int groups = (regular + per_group - 1) / per_group;
    if (item >= per_group)
        return -1;
    if (group >= groups)
        return item == per_group - 1 ? count - 1 : -1;
    const int index = group * per_group + item;
    return index < regular ? index : -1;
}

// Position of the first reference patch of a work-group. It may be negative: outside the image.
static inline int group_origin(int group, int per_group, int regular, int first, int last)
{
    const int groups = (regular + per_group - 1) / per_group;
    return group < groups ? first + group * per_group * STEP : last - (per_group - 1) * STEP;
}

// A pixel of a padded frame. Positions outside it are clamped: only discarded references read them.
static inline float padded_pixel(__global const float *frame, int pny, int pitch, int y, int x)
{
    return frame[(size_t)clamp(y, 0, pny - 1) * pitch + clamp(x, 0, pitch - 1)];
}

// Copies `height` rows of `width` pixels of a frame, from (top, left) on, to local memory; work-item `item` of `items` does its share.
static inline void copy_pixels(__local float *tile, int height, int width, int item, int items,
                               __global const float *frame, int pny, int pitch, int top, int left)
{
    for (int k = item; k < height * width; k += items)
        tile[k] = padded_pixel(frame, pny, pitch, top + k / width, left + k % width);
}

// Number `nth` of `count` places, from the middle out. Nearby patches are the most alike: once the list holds them, few others
// have to be inserted.
static inline int from_middle(int nth, int count)
{
    return count / 2 + (nth % 2 ? -(nth + 1) / 2 : nth / 2);
}

// The frames that are searched: the one of the reference, then those next to it, and so on. The lists are then soon good, and few
// candidates are inserted.
static inline int nearest_first(int nth, int before, int after)
{
    const int both = min(before, after);
    if (nth > 2 * both)
        return after > before ? nth - both : both - nth;
    return nth & 1 ? (nth + 1) / 2 : -(nth / 2);
}

// What a search knows of the reference of an item, in a group that serves so many along y and x; `top` and `left` are the corner of
// the first patch of the group.
#define REFERENCE_OF_ITEM(per_group_y, per_group_x) \
    const int lx = get_local_id(0), ly = get_local_id(1), item = ly * GROUP_X + lx, frame = get_global_id(2); \
    const int row = group_reference(get_group_id(1), ly, per_group_y, regular_y, rows); \
    const int column = group_reference(get_group_id(0), lx, per_group_x, regular_x, columns); \
    const bool mine = row >= 0 && column >= 0; \
    const int top = y0 + group_origin(get_group_id(1), per_group_y, regular_y, first_y, last_y); \
    const int left = x0 + group_origin(get_group_id(0), per_group_x, regular_x, first_x, last_x); \
    const size_t plane = (size_t)pny * pitch; \
    __global const float *here = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane;
