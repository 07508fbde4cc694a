// Variances of the noise in the coefficients that an item of a team holds, where patches overlap.
//
// Reference: as in bm3d/shared_noise.h.
// Needs: bm3d/shared_noise.h, bm3d/team.h.

// Where covariances are read: white noise needs one of each axis, in local memory; with SPECTRUM `along_y` holds both.
#if SPECTRUM
#define COVARIANCE __global const float
#else
#define COVARIANCE __local const float
#endif

// Large groups: of blocks with 8 and more patches on either side, only how often each displacement comes is kept.
#define HISTOGRAMS (PARTS != 4 || SPECTRUM ? 0 : NEIGHBOURS == 32 ? 3 : NEIGHBOURS == 16 ? 1 : 0)

// Histogram of a pair p, q of such a block: that of all patches, then those of the halves of 32.
static inline int histogram_of(int p, int q)
{
    return NEIGHBOURS == 16 || (p ^ q) >= 16 ? 0 : 1 + p / 16;
}

// Other patches of a full group; groups of one have no pairs, but must not divide by zero.
#define OTHERS (NEIGHBOURS > 1 ? NEIGHBOURS - 1 : 1)

// Stores the displacement of each pair of patches, and clears and counts histograms. The pairs of p and those of
// NEIGHBOURS - 1 - p are as many for every p: so each item has as much to do.
static inline void keep_overlaps(__local uchar *codes, __local int *counts, __local const int *places, int size, int member)
{
#if HISTOGRAMS
    for (int k = member; k < HISTOGRAMS * PATCH * PATCH; k += TEAM)
        counts[k] = 0;
    TEAM_SYNC();
#endif
    for (int pair = member; pair < NEIGHBOURS / 2 * (NEIGHBOURS - 1); pair += TEAM) {
        const int r = pair / OTHERS, c = pair % OTHERS;
        const int p = c >= r ? r : NEIGHBOURS - 1 - r;
        const int q = c >= r ? c + 1 : NEIGHBOURS - 1 - c;
        const int4 one = place_offset(places[p]), other = place_offset(places[q]);
        const uchar code = q < size ? overlap_code(one, other) : APART;
        if (!HISTOGRAMS || (p ^ q) < 8)
            codes[pair_place(p, q)] = code;
        else if (code != APART)
            atomic_inc(counts + histogram_of(p, q) * PATCH * PATCH + code);
    }
#if HISTOGRAMS
    TEAM_SYNC();
#endif
}

static inline void add_pair(float *sum, uint code, COVARIANCE *along_y, COVARIANCE *along_x)
{
#if SPECTRUM
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        sum[i] += along_y[code * (PATCH * PATCH) + i * PATCH];
#else
    const float y = along_y[code & ~(PATCH - 1)];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        sum[i] = fma(y, along_x[code % PATCH * PATCH + i], sum[i]);
#endif
}

static inline void add_four(float *sum, uint four, COVARIANCE *along_y, COVARIANCE *along_x)
{
    #pragma unroll
    for (int shift = 0; shift < 32; shift += 8)
        add_pair(sum, four >> shift & 255, along_y, along_x);
}

// Sums the covariances across the halves of each block of the stack, see variances_of_sums, for ROWS coefficients.
static inline void across_pairs(float *sums, __local const uchar *codes, COVARIANCE *along_y, COVARIANCE *along_x)
{
    #pragma unroll
    for (int stride = 1; stride < (HISTOGRAMS ? 8 : NEIGHBOURS); stride *= 2) {
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; k += 2 * stride) {
            __local const uchar *block = codes + stride_place(stride) + k / 2 * stride;
            float sum[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                sum[i] = 0.0f;
            // Sixteen at a time, so that their loads overlap.
            for (int pair = 0; pair + 15 < stride * stride; pair += 16) {
                const uint4 many = *(__local const uint4 *)(block + pair);
                if (any(many != FOUR_APART)) {
                    add_four(sum, many.x, along_y, along_x);
                    add_four(sum, many.y, along_y, along_x);
                    add_four(sum, many.z, along_y, along_x);
                    add_four(sum, many.w, along_y, along_x);
                }
            }
            if (stride < 4) {
                #pragma unroll
                for (int pair = 0; pair < stride * stride; ++pair)
                    add_pair(sum, block[pair], along_y, along_x);
            }
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                sums[i * NEIGHBOURS + k + stride] = sum[i];
        }
    }
}

#if HISTOGRAMS
// The same for the blocks that histograms are kept of: a displacement is one product, however many pairs have it.
static inline void across_blocks(float *sums, __local const int *counts, COVARIANCE *along_y, COVARIANCE *along_x)
{
    float y[PATCH], x[PATCH][ROWS];
    #pragma unroll
    for (int d = 0; d < PATCH; ++d) {
        y[d] = along_y[d * PATCH];
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            x[d][i] = along_x[d * PATCH + i];
    }
    #pragma unroll
    for (int h = 0; h < HISTOGRAMS; ++h) {
        float sum[ROWS];
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            sum[i] = 0.0f;
        #pragma unroll
        for (int dy = 0; dy < PATCH; ++dy) {
            __local const int4 *line = (__local const int4 *)(counts + (h * PATCH + dy) * PATCH);
            const float4 near = convert_float4(line[0]), far = convert_float4(line[1]);
            const float pairs[PATCH] = {near.x, near.y, near.z, near.w, far.x, far.y, far.z, far.w};
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                float along = 0.0f;
                #pragma unroll
                for (int dx = 0; dx < PATCH; ++dx)
                    along = fma(pairs[dx], x[dx][i], along);
                sum[i] = fma(y[dy], along, sum[i]);
            }
        }
        // Where variances_of_sums reads it: half a block after its first patch.
        const int place = h == 0 ? NEIGHBOURS / 2 : 16 * h - 8;
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            sums[i * NEIGHBOURS + place] = sum[i];
    }
}
#endif
