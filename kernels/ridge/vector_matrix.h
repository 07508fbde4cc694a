// Matrices of NEIGHBOURS rows as vectors of LANES numbers: the products of patches, and the inverse.
//
// Needs: common/lanes.h, groups.h.

#define VECTORS (NEIGHBOURS / LANES)
#define FLOATS(pointer) ((float *)(pointer))

// Reads one pixel of every patch.
static inline void gather(real *line, __global const float *image, const int *place, int ahead)
{
    for (int j = 0; j < NEIGHBOURS; ++j)
        FLOATS(line)[j] = image[place[j] + ahead];
}

// Adds the products of the patches, whose pixels are rows, to `q`.
static inline void add_products(real *q, const real *patches)
{
    for (int i = 0; i < NEIGHBOURS; i += 4) {
        real sum[4][VECTORS];
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                sum[k][v] = q[(i + k) * VECTORS + v];
        for (int p = 0; p < PIXELS; ++p) {
            const float *row = (const float *)(patches + p * VECTORS);
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    sum[k][v] = fma((real)row[i + k], patches[p * VECTORS + v], sum[k][v]);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                q[(i + k) * VECTORS + v] = sum[k][v];
    }
}

// Replaces a positive definite matrix by its inverse times -1, by sweeps. Without rounding no pivot is less than the noise.
static inline void invert(real *q, const real *noise)
{
    // Two sweeps at a time: rows are then read and written half as often.
    for (int s = 0; s < NEIGHBOURS; s += 2) {
        real first[VECTORS], second[VECTORS];
        float *a = FLOATS(q + s * VECTORS), *b = FLOATS(q + (s + 1) * VECTORS);
        const float over_first = 1.0f / max(a[s], ((const float *)noise)[s]);
        const float between = a[s + 1];
        const float over_second = 1.0f / max(b[s + 1] - between * between * over_first, ((const float *)noise)[s + 1]);
        const float share = between * over_first;
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            first[v] = q[s * VECTORS + v];
            second[v] = fma((real)-share, first[v], q[(s + 1) * VECTORS + v]);
        }
        // Column s is swept: what it then holds of the second row.
        FLOATS(second)[s] = share;
        float shares[2][NEIGHBOURS];
        for (int i = 0; i < NEIGHBOURS; ++i) {
            shares[0][i] = FLOATS(first)[i] * over_first;
            shares[1][i] = FLOATS(second)[i] * over_second;
        }
        for (int i = 0; i < NEIGHBOURS; ++i) {
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                q[i * VECTORS + v] = fma((real)-shares[1][i], second[v], fma((real)-shares[0][i], first[v], q[i * VECTORS + v]));
            // Columns s and s + 1.
            FLOATS(q + i * VECTORS)[s] = shares[0][i] - shares[1][i] * share;
            FLOATS(q + i * VECTORS)[s + 1] = shares[1][i];
        }
        // Rows s and s + 1, which are these columns.
        for (int i = 0; i < NEIGHBOURS; ++i) {
            a[i] = FLOATS(q + i * VECTORS)[s];
            b[i] = FLOATS(q + i * VECTORS)[s + 1];
        }
        a[s] = -over_first - share * share * over_second;
        a[s + 1] = b[s] = share * over_second;
        b[s + 1] = -over_second;
    }
}
