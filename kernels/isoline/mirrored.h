// Where a pixel lies that is beyond the image: in its mirror image, the last pixel not repeated.

// Period 2 (n - 1); an image one pixel wide is the same everywhere.
static inline int mirrored(int at, int n)
{
    if (at >= 0 && at < n)
        return at;
    const int period = max(2 * (n - 1), 1);
    const int inside = ((at % period) + period) % period;
    return n > 1 ? min(inside, period - inside) : 0;
}
