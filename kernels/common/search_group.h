// A work-group searches for a rectangle of neighbouring reference patches, REFERENCES_X times REFERENCES_Y of them.
//
// Where the last reference of an axis does not fall on the grid, one more group is laid so that its last reference
// is that one; its others are computed and dropped.

// Index along the axis of the reference patch of item `local_index`, or -1 if it is not this group's to find.
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

// Position of the first reference patch of a group; it may lie before the image.
static inline int group_origin(int group, int per_group, int regular, int first, int last)
{
    const int groups = (regular + per_group - 1) / per_group;
    return group < groups ? first + group * per_group * STEP : last - (per_group - 1) * STEP;
}

// A pixel of a padded frame; positions beyond it serve only references that are dropped.
static inline float padded_pixel(__global const float *frame, int pny, int pitch, int y, int x)
{
    return frame[(size_t)clamp(y, 0, pny - 1) * pitch + clamp(x, 0, pitch - 1)];
}
