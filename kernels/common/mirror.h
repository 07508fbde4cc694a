// The place of a voxel outside the volume in its mirror image; the last voxel is repeated.

// The period is 2 n.
static inline int mirror_place(int at, int n)
{
    if (at >= 0 && at < n)
        return at;
    const int inside = ((at % (2 * n)) + 2 * n) % (2 * n);
    return min(inside, 2 * n - 1 - inside);
}
