"""Products that are made some rows at a time."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.noise.patches.coefficients import ROWS, matmul_in_blocks


@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS, 3 * ROWS + 5])
@pytest.mark.parametrize("columns", [0, 1, 31])
def test_every_row_is_multiplied(count, columns):
    rng = np.random.default_rng(0)
    rows, matrix = rng.normal(size=(count, 16)), rng.normal(size=(columns, 16)).T
    expected = (rows[:, :, None] * matrix).sum(axis=1)
    np.testing.assert_allclose(matmul_in_blocks(rows, matrix), expected, rtol=0, atol=1e-12)
