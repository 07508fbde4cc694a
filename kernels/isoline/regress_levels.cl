// Staircase correction: fits a plane to the noisy pixels around each one, weighted by the similarity of their pilots.
//
// Reference: Buades, Coll, Morel 2006, "The staircasing effect in neighborhood filters and its solution".
// Grid: (nx, ny, images), the first pixel being (y0, x0) of the padded ones.
// Constants: RADIUS of the window; OPPONENT = 1 if the images are luminance, chrominance and chrominance: the pilot of the
//   luminance then also counts for the others; those of isoline/noise.h.
// Shapes: pixels (images, pny, pitch); pilot (guides, pny, pitch): image i uses number i % guides; out (images, out_ny,
//   out_pitch), where the first pixel goes to (out_y0, out_x0).
// Cost of a pixel: 2 (2 RADIUS + 1)^2 reads.

#include "common/pixel_item.h"
#include "isoline/noise.h"
#include "isoline/weights.h"

// Standard deviations of the Gaussian weights: of differences, in units of the noise, and of distances, in pixels.
#define ALIKE 0.5f
#define NEARBY 4.0f
// Regularises the fit where all pixels with weight lie on a line; in squared pixels.
#define RIDGE 10.0f
// Smallest sum of two speckled grey levels.
#define DARKEST 1e-30f

__kernel void regress_levels(__global const float *pixels, __global const float *pilot, int guides, int pny, int pitch,
                             int y0, int x0, int ny, int nx, NOISE_ARGUMENTS,
                             __global float *out, int out_ny, int out_pitch, int out_y0, int out_x0)
{
    PIXEL_OF_ITEM(nx, ny)
    const size_t inside = (size_t)(y0 + y) * pitch + x0 + x;
    const size_t plane = (size_t)pny * pitch;
    __global const float *levels_here = pixels + image * plane + inside;
    __global const float *pilots_here = pilot + (image % guides) * plane + inside;
    const float level = levels_here[0];
    const float own = pilots_here[0];
    const float unit = SPECKLE ? 2.0f / (GAUSSIAN(ALIKE) * relative)
                               : over_noise(GAUSSIAN(ALIKE) * noise_of(NOISE, image % guides, inside, own));

#if OPPONENT
    const int frames = guides / 3;
    const int frame = image % frames;
    __global const float *luminance = pilot + frame * plane + inside;
    const float luminance_unit = over_noise(GAUSSIAN(ALIKE) * noise_of(NOISE, frame, inside, luminance[0]));
    const float own_share = image < frames ? 1.0f : 0.5f;
    const float luminance_share = image < frames ? 0.0f : 0.25f;
#endif

    // Sums of the weights w, of w times j and i, and of w times the level.
    float w = 0.0f, wj = 0.0f, wi = 0.0f, wjj = 0.0f, wji = 0.0f, wii = 0.0f;
    float v = 0.0f, vj = 0.0f, vi = 0.0f;
#if RADIUS <= 5
    // A CPU compiler vectorises across work-items only if there are no loops.
    #pragma unroll
#endif
    for (int j = -RADIUS; j <= RADIUS; ++j) {
        float rw = 0.0f, rwi = 0.0f, rwii = 0.0f, rv = 0.0f, rvi = 0.0f;
        #pragma unroll
        for (int i = -RADIUS; i <= RADIUS; ++i) {
            // Of speckle relative to the mean of both, which makes it symmetric: their noise differs.
            const float other = pilots_here[j * pitch + i];
            const float apart = (SPECKLE ? (other - own) / fmax(fabs(other + own), DARKEST) : other - own) * unit;
            float eighth = apart * apart;
#if OPPONENT
            const float of_luminance = (luminance[j * pitch + i] - luminance[0]) * luminance_unit;
            eighth = fma(own_share, eighth, luminance_share * of_luminance * of_luminance);
#endif
            const float weight = falling(eighth) * exp(-(float)(i * i) / (2.0f * NEARBY * NEARBY));
            const float weighted = weight * (levels_here[j * pitch + i] - level);
            rw += weight;
            rwi = fma(weight, (float)i, rwi);
            rwii = fma(weight, (float)(i * i), rwii);
            rv += weighted;
            rvi = fma(weighted, (float)i, rvi);
        }
        const float near = exp(-(float)(j * j) / (2.0f * NEARBY * NEARBY));
        const float f = (float)j;
        w = fma(near, rw, w);
        wi = fma(near, rwi, wi);
        wii = fma(near, rwii, wii);
        v = fma(near, rv, v);
        vi = fma(near, rvi, vi);
        wj = fma(near * f, rw, wj);
        wji = fma(near * f, rwi, wji);
        wjj = fma(near * f * f, rw, wjj);
        vj = fma(near * f, rv, vj);
    }
    const float over = 1.0f / w; // w is at least 1, the weight of the pixel itself
    const float mj = wj * over, mi = wi * over, mv = v * over;
    const float jj = fma(-wj, mj, wjj) + RIDGE;
    const float ji = fma(-wj, mi, wji);
    const float ii = fma(-wi, mi, wii) + RIDGE;
    const float vjc = fma(-wj, mv, vj);
    const float vic = fma(-wi, mv, vi);
    const float down = (ii * vjc - ji * vic) / (jj * ii - ji * ji);
    const float right = (jj * vic - ji * vjc) / (jj * ii - ji * ji);
    const float plane_here = mv - down * mj - right * mi;
    out[(image * out_ny + out_y0 + y) * out_pitch + out_x0 + x] = level + plane_here;
}
