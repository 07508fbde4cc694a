// Where the estimate of pixel (i, j) of a patch lies.
//
// Constants: PATCH; PLANES = 1: planes of (frame, i, j, row, column), where neighbouring patches lie beside each other; else a patch
//   after another, (frame, row, column, i, j).

static inline size_t estimate_place(int frame, int rows, int columns, int row, int column, int i, int j)
{
#if PLANES
    return (((size_t)frame * (PATCH * PATCH) + i * PATCH + j) * rows + row) * columns + column;
#else
    return (((size_t)frame * rows + row) * columns + column) * (PATCH * PATCH) + i * PATCH + j;
#endif
}
