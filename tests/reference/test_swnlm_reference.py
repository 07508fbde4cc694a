"""The Shapiro-Wilk statistic of the reference is SciPy's, and its limits are Royston's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reference.swnlm import critical_w, shapiro_wilk, swnlm


@pytest.mark.parametrize("n", [9, 25, 49])
def test_w_is_that_of_scipy(n):
    rng = np.random.default_rng(n)
    draws = np.concatenate([rng.normal(5, 3, (n, 50)), rng.exponential(2, (n, 50))], axis=1)
    expected = [stats.shapiro(one).statistic for one in draws.T]
    np.testing.assert_allclose(shapiro_wilk(draws), expected, atol=1e-9)


@pytest.mark.parametrize(("n", "limit"), [(9, 0.83438), (25, 0.91954), (49, 0.95324)])
def test_limit_of_w_is_where_scipy_gives_that_probability(n, limit):
    assert critical_w(n, 0.05) == pytest.approx(limit, abs=1e-5)
    rng = np.random.default_rng(n)
    found = [stats.shapiro(one) for one in rng.normal(size=(400, n))]
    for alpha in (0.01, 0.05, 0.3):
        least = critical_w(n, alpha)
        assert all((one.statistic < least) == (one.pvalue < alpha) for one in found)


def test_only_patches_that_differ_like_noise_are_averaged():
    noisy = np.random.default_rng(0).normal(100, 10, (24, 24))
    noisy[:, 12:] += 200
    found = swnlm(noisy, 10, patch=5, window=7)
    assert found.accepted.max() > 10
    assert np.ptp(found.image[:, :8]) < np.ptp(noisy[:, :8])
    assert abs(found.image[:, 12:].mean() - noisy[:, 12:].mean()) < 3
    np.testing.assert_array_equal(swnlm(noisy, 1, window=7).accepted, 0)
    np.testing.assert_array_equal(swnlm(np.full((9, 9), 3.0), 1, window=5).image, 3)
