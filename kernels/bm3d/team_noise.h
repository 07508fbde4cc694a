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

// Stores the displacement of each pair of patches, and clears and counts histograms: that of the block of all patches, then those of
// the halves of 32. Pairs are in the order of the blocks they count in.
__attribute__((always_inline))
static inline void keep_overlaps(__local uchar *codes, __local int *counts, __local const int *places, int size, int member)
{
#if HISTOGRAMS
    for (int k = member; k < HISTOGRAMS * PATCH * PATCH; k += TEAM)
        counts[k] = 0;
    TEAM_SYNC();
#endif
    #pragma unroll
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2) {
        #pragma unroll 1
        for (int turn = 0; turn < NEIGHBOURS / 2 * stride; turn += TEAM) {
            const int number = turn + member;
            if (number < NEIGHBOURS / 2 * stride) {
                const int2 pair = pair_at(number, stride);
                const int4 one = place_offset(places[pair.x]), other = place_offset(places[pair.y]);
                const uchar code = pair.y < size ? overlap_code(one, other) : APART;
                if (!HISTOGRAMS || stride < 8)
                    codes[stride_place(stride) + number] = code;
                else if (code != APART)
                    atomic_inc(counts + (2 * stride == NEIGHBOURS ? 0 : 1 + pair.x / 16) * PATCH * PATCH + code);
            }
        }
    }
#if HISTOGRAMS
    TEAM_SYNC();
#endif
}

#if !SPECTRUM
// Loads ROWS values, which are aligned.
static inline void load_rows(float *rows, COVARIANCE *from)
{
#if ROWS == 2
    vstore2(*(__local const float2 *)from, 0, rows);
#else
    #pragma unroll
    for (int i = 0; i < ROWS / 4; ++i)
        vstore4(((__local const float4 *)from)[i], i, rows);
#endif
}
#endif

static inline void add_pair(float *sum, uint code, COVARIANCE *along_y, COVARIANCE *along_x)
{
#if SPECTRUM
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        sum[i] += along_y[code * (PATCH * PATCH) + i * PATCH];
#else
    const float y = along_y[code & ~(PATCH - 1)];
    float x[ROWS];
    load_rows(x, along_x + code % PATCH * PATCH);
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        sum[i] = fma(y, x[i], sum[i]);
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
            const int first = stride_place(stride) + k / 2 * stride;
            float sum[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                sum[i] = 0.0f;
            // Sixteen at a time, so that their loads overlap.
            for (int pair = 0; pair + 15 < stride * stride; pair += 16) {
                const uint4 many = *(__local const uint4 *)(codes + first + pair);
                if (any(many != FOUR_APART)) {
                    add_four(sum, many.x, along_y, along_x);
                    add_four(sum, many.y, along_y, along_x);
                    add_four(sum, many.z, along_y, along_x);
                    add_four(sum, many.w, along_y, along_x);
                }
            }
            if (stride < 4) {
                #pragma unroll
                for (int pair = first; pair < first + stride * stride; ++pair) {
                    // The compiler loads four codes at a time, where whole words of them are in use.
                    const uint four = ((__local const uint *)codes)[pair / 4];
                    add_pair(sum, NEIGHBOURS < 8 ? codes[pair] : four >> (8 * (pair % 4)) & 255, along_y, along_x);
                }
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
        load_rows(x[d], along_x + d * PATCH);
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
