// The position of a pixel outside the image in its mirror image; the last pixel is not repeated.

// The period is 2 (n - 1). An image one pixel wide repeats that pixel.
static inline int mirrored(int at, int n)
{
    if (at >= 0 && at < n)
        return at;
    const int period = max(2 * (n - 1), 1);
    const int inside = ((at % period) + period) % period;
    return n > 1 ? min(inside, period - inside) : 0;
}
