// Groups of similar patches, in images or volumes that lie one after the other with no margin, or with VIDEO in rings of frames.
//
// Needs: common/match_key.h; with VIDEO common/frame_ring.h, common/place_code.h. Constants: NEIGHBOURS; PZ, PY, PX, the sides of a
//   patch; STEP_Z, STEP_Y, STEP_X; SIGMA_MAP; CHAIN = 1: what is combined is partly filtered already; KEPT = 1: a part of it remains.
// Shapes: images (volumes, nz, ny, nx); offsets (displacements) as (0, dz, dy, dx), the first one zero; keys (matched, layers, rows,
//   NEIGHBOURS, columns), of which all channels of a volume share those of the first one; levels (volumes, slices): sigma of every
//   slice, that of the first one at `first_slice`; variation (map_ny, map_pitch), whose pixel (map_y, map_x) is the origin; sums
//   (volumes, 1 + KEPT, nz, ny, nx): what the estimate changes by, in sigma times `scale` and weight, and then the same times the part
//   that remains; weights likewise, of the patch that begins there.
//   With VIDEO: images (channels, ring, ny, nx), padded; keys and places as vbm3d/search_patches writes them; links (channels, matched,
//   frames_before + 1 + frames_after, 3); sums (channels, sum_ring, 2 (1 + KEPT), ny, nx), the weights after the sums.

#include "common/match_key.h"
#if VIDEO
#include "common/frame_ring.h"
#include "common/place_code.h"
#endif

#define PIXELS (PZ * PY * PX)
#define KINDS (1 + KEPT)

// Factor that the variance of a patch is at least, relative to that of its reference.
#define LEAST_FACTOR 1e-4f
// The same for a map of sigma in the middle of a reference.
#define LEAST_VARIATION 1e-2f
// What the diagonal of Q is multiplied by, so that rounding leaves it positive definite.
#define DIAGONAL 1.000004f

#if SIGMA_MAP
#define MAP_ARGUMENTS __global const float *variation, int map_pitch, int map_y, int map_x,
#define MAP_NAMES variation, map_pitch, map_y, map_x,
#define VARIED(y, x) variation[((y) + map_y + PY / 2) * map_pitch + (x) + map_x + PX / 2]
#else
#define MAP_ARGUMENTS
#define MAP_NAMES
#define VARIED(y, x) 1.0f
#endif
#if VIDEO
#define PLACE_ARGUMENTS int ny, int nx, int y0, int x0, int first_y, int last_y, int rows, int first_x, int last_x, int columns, \
                        int ring, int first_slot, int sum_ring, int first_sum, int frames_before, int frames_after, int earliest, \
                        int matched, __global const uint *codes, __global const uint *keys, __global const float *links
#define PLACE_NAMES ny, nx, y0, x0, first_y, last_y, rows, first_x, last_x, columns, ring, first_slot, sum_ring, first_sum, \
                    frames_before, frames_after, earliest, matched, codes, keys, links
#define LAYERS 1
#define WEIGHTS_ARGUMENT
#define WEIGHTS (sums + KINDS * group.stride)
#else
#define PLACE_ARGUMENTS int nz, int ny, int nx, int first_z, int last_z, int layers, int first_y, int last_y, int rows, \
                        int first_x, int last_x, int columns, int matched, __global const int4 *offsets, \
                        __global const uint *keys, __global const float *levels, int slices, int first_slice
#define PLACE_NAMES nz, ny, nx, first_z, last_z, layers, first_y, last_y, rows, first_x, last_x, columns, matched, offsets, keys, \
                    levels, slices, first_slice
#define LAYERS layers
#define WEIGHTS_ARGUMENT , __global int *weights
#define WEIGHTS weights
#endif

typedef struct {
    size_t origin;     // what the places of its patches count from
    size_t sums;       // the same for their sums
    size_t stride;     // from one kind of sums to the next
    size_t first_key;
    int z;             // where the reference is; with VIDEO of its frame, in the ring of images, and in that of sums
    int sums_slot;
    int y;
    int x;
    int link;          // of the frame with itself
    float sigma;       // of the noise in the reference; 0: nothing is filtered
} Group;

typedef struct {
    int place;     // of its first pixel; -1 where there is no patch
    int added;     // of its sums; -1 if it adds to none
    float factor;  // of the variance of its noise, relative to that of the reference
    float scale;   // of its grey levels, and what is then added, to bring them to those of the reference
    float shift;
    float noise;   // with VIDEO sigma in its frame, in these grey levels
} Match;

// Position of the reference with this number along an axis.
static inline int reference_at(int number, int step, int first, int last)
{
    return min(first + number * step, last);
}

static inline Group group_at(PLACE_ARGUMENTS, MAP_ARGUMENTS int image, int layer, int row, int column)
{
    Group group;
    group.y = reference_at(row, STEP_Y, first_y, last_y);
    group.x = reference_at(column, STEP_X, first_x, last_x);
    group.first_key = (((size_t)(image % matched) * LAYERS + layer) * rows + row) * NEIGHBOURS * columns + column;
#if VIDEO
    group.y += y0;
    group.x += x0;
    group.stride = (size_t)ny * nx;
    group.origin = (size_t)(image / matched) * ring * group.stride;
    group.sums = (size_t)(image / matched) * sum_ring * (2 * KINDS) * group.stride;
    group.z = ring_slot(first_slot, image % matched, ring);
    group.sums_slot = ring_slot(first_sum, image % matched, sum_ring);
    group.link = image * (frames_before + 1 + frames_after) + frames_before;
    group.sigma = frame_link(links, group.link).noise;
#else
    group.z = reference_at(layer, STEP_Z, first_z, last_z);
    group.stride = (size_t)nz * ny * nx;
    group.origin = image * group.stride;
    group.sums = group.origin * KINDS;
    group.link = image * slices + first_slice;  // of sigma in its first slice
    group.sigma = levels[group.link + group.z + PZ / 2];
#endif
    group.sigma *= max(VARIED(group.y, group.x), LEAST_VARIATION);
    return group;
}

// Patch number `j` of a group; of one that is not filtered there is only the reference. The reference itself always is the first, even where its values are no numbers.
static inline Match match_of(Group group, PLACE_ARGUMENTS, MAP_ARGUMENTS int j)
{
    const size_t at = group.first_key + (size_t)j * columns;
    const uint key = keys[at];
    const bool known = key < FAR_KEY && group.sigma > 0.0f;
    const bool found = j == 0 || known;
    Match match = {-1, -1, 1.0f, 1.0f, 0.0f, 1.0f};
    if (!found)
        return match;
#if VIDEO
    const uint code = known ? codes[at] : 0u;
    const int dt = place_t(code), y = group.y + place_y(code), x = group.x + place_x(code);
    const Link link = frame_link(links, group.link + dt);
    match.place = (ring_slot(group.z, dt, ring) * ny + y) * nx + x;
    match.added = dt < earliest ? -1 : (ring_slot(group.sums_slot, dt, sum_ring) * (2 * KINDS) * ny + y) * nx + x;
    match.scale = link.scale;
    match.shift = link.shift;
    match.noise = link.noise;
#else
    const int4 offset = offsets[known ? key & INDEX_MASK : 0u];
    const int y = group.y + offset.z, x = group.x + offset.w;
    match.place = match.added = ((group.z + offset.y) * ny + y) * nx + x;
    match.noise = levels[group.link + group.z + offset.y + PZ / 2];
#endif
    const float ratio = match.noise * VARIED(y, x) / group.sigma;
    match.factor = max(ratio * ratio, LEAST_FACTOR);
    return match;
}

// Distance in memory from the first pixel of a patch to pixel `p`.
static inline int pixel_ahead(int p, int ny, int nx)
{
    return (p / (PY * PX) * ny + p / PX % PY) * nx + p % PX;
}

// Sigma, in grey levels of the reference, that the sums of pixel `p` of a patch are relative to.
#if VIDEO
#define NOISE_AT(place, noise, p) (noise)
#else
#define NOISE_AT(place, noise, p) levels[group.link + (place) / (ny * nx) + (p) / (PY * PX)]
#endif

// How strong noise still is in a partly filtered group, in sigma: 1 at first. `first` and `second` are the sums over all of its `count`
// pixels of what has been removed, in sigma, and of the squares.
static inline float remaining_noise(float first, float second, float count, float least)
{
    const float mean = first / count;
    const float removed = sqrt(max(second / count - mean * mean, 0.0f));
    return max(max(1.0f - removed, least + 1e-6f), 0.1f);
}

// Whole number that a patch weighs, whose estimate has the variance `variance`; `units` stand for a weight of 1, the largest.
static inline int patch_weight(float variance, float units)
{
    return convert_int_rte(units / max(NEIGHBOURS * variance, 1.0f));
}

// Arguments of the kernels that combine groups.
#define COMBINED_ARGUMENTS \
    __global const float *noisy, __global const float *estimate, __global const float *begun, PLACE_ARGUMENTS, MAP_ARGUMENTS \
    float least, float scale, float largest, float units, __global int *sums WEIGHTS_ARGUMENT
