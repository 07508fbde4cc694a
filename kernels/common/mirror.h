// The place of a voxel outside the volume in its mirror image.

// The last voxel is repeated: the period is 2 n.
static inline int mirror_place(int at, int n)
{
    if (at >= 0 && at < n)
        return at;
    const int inside = ((at % (2 * n)) + 2 * n) % (2 * n);
    return min(inside, 2 * n - 1 - inside);
}

// The last one is not repeated: the period is 2 (n - 1). An image one pixel wide repeats that pixel.
static inline int mirrored(int at, int n)
{
    if (at >= 0 && at < n)
        return at;
    const int period = max(2 * (n - 1), 1);
    const int inside = ((at % period) + period) % period;
    return n > 1 ? min(inside, period - inside) : 0;
}
