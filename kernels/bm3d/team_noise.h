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

// Stores the displacement of each pair of patches.
static inline void keep_overlaps(__local uchar *codes, __local const int *places, int size, int member)
{
    for (int p = member; p < NEIGHBOURS - 1; p += TEAM) {
        for (int q = p + 1; q < NEIGHBOURS; ++q) {
            const int4 one = place_offset(places[p]), other = place_offset(places[q]);
            codes[pair_place(p, q)] = q < size ? overlap_code(one, other) : APART;
        }
    }
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
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2) {
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
