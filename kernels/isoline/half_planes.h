// Tests for edges near a pixel. Eight lines through it each divide the 8 * LENGTH + 1 pixels of a star into two half-planes.
//
// Reference: Perrot et al. 2014, section 4.3, algorithm 4, equation 11.
// Needs: isoline/segments.h.

#define LOW_SLOPE 0
#define EDGE 1
#define ISOLINE 2

typedef struct {
    int edges;    // number of lines with an edge between their half-planes
    int line;     // the last of these
    float beside; // mean of the half-plane of the pixel
    float star;   // mean of all pixels of the star
} Edges;

// Means are relative to `level`, the grey level of the pixel at `pixels`.
static inline Edges edges_around(__global const float *pixels, int pitch, float level, float looks, float most)
{
    Sample rays[8];
    #pragma unroll
    for (int k = 0; k < 8; ++k)
        rays[k] = segment(pixels, pitch, 4 * k, level);
    Edges found = {0, 0, 0.0f, 0.0f};
    #pragma unroll
    for (int line = 0; line < 8; ++line) {
        Sample own = {1.0f, 0.0f, 0.0f};
        for (int k = 0; k < 5; ++k)
            own = joined(own, rays[(line + k) % 8], level);
        Sample other = joined(joined(rays[(line + 5) % 8], rays[(line + 6) % 8], level), rays[(line + 7) % 8], level);
        const Sample both = joined(own, other, level);
        if (log_ratio(own, other, both.spread, level, looks) > most) {
            ++found.edges;
            found.line = line;
            found.beside = own.mean;
        }
        found.star = both.mean;
    }
    return found;
}

// Mean of a pixel and of `count` rays of its star, relative to `own`, its grey level.
static inline float rays_mean(__global const float *pixels, int pitch, int first, int count, float own)
{
    float sum = 0.0f;
    for (int k = 0; k < count; ++k)
        sum += LENGTH * segment(pixels, pitch, 4 * ((first + k) % 8), own).mean;
    return sum / (count * LENGTH + 1);
}
