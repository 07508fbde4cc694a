"""The Shapiro-Wilk NL-means against NumPy, on a CPU and with the kernels of a GPU."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

import napari_gpu_denoise as gd
from flows import filtered
from napari_gpu_denoise.filters.swnlm import royston_limit, royston_weights
from napari_gpu_denoise.opencl.program import expand, session
from reference.swnlm import critical_w, shapiro_wilk, weights_of_order
from scenes import noisy, psnr, scene

W_OF_DRAWS = """
#line 1 "w_of_draws"
__kernel void w_of_draws(__global const float *draws, int count, __constant float *weights,
                         __global float *found)
{
    const int first = get_global_id(0) * LANES;
    real f[VALUES];
    real sum = 0.0f, squares = 0.0f;
    for (int j = 0; j < PATCH; ++j) {
        real row = 0.0f;
        for (int k = j * PATCH; k < (j + 1) * PATCH; ++k) {
            f[k] = AT(draws + k * count + first);
            sum += f[k];
            row = fma(f[k], f[k], row);
        }
        squares += row;
    }
    PUT(found + first) = shapiro_wilk(f, spread_of(sum, squares), weights);
}
"""


def image_of(*shape):
    """Return edges and texture in noise of deviation 20."""
    return noisy(*shape).astype(np.float32)


def w_of(draws: np.ndarray, patch: int, lanes: int, device) -> np.ndarray:
    """Return W of columns of values, by the function that the kernels use."""
    made = session(device)
    parts = (expand("common/lanes.h"), expand("swnlm/normality.h"), W_OF_DRAWS)
    options = [f"-DPATCH={patch}", f"-DLANES={lanes}"]
    kernel = cl.Program(made.context, "\n".join(parts)).build(options).w_of_draws
    flags, count = cl.mem_flags.COPY_HOST_PTR, draws.shape[1]
    given, weights = (
        cl.Buffer(made.context, flags, hostbuf=np.ascontiguousarray(a, np.float32))
        for a in (draws, royston_weights(patch**2))
    )
    found = np.empty(count, np.float32)
    out = cl.Buffer(made.context, cl.mem_flags.WRITE_ONLY, found.nbytes)
    queue = made.queue()
    kernel(queue, (count // lanes,), None, given, np.int32(count), weights, out)
    cl.enqueue_copy(queue, found, out)
    return found


@pytest.mark.parametrize("patch", [3, 5, 7])
def test_w_is_that_of_the_reference(device, optimised, patch):
    """That of the reference is SciPy's, see test_references."""
    rng = np.random.default_rng(patch)
    draws = rng.normal(size=(patch**2, 10000))
    draws[:, 1::4] = rng.exponential(size=draws[:, 1::4].shape)
    draws[:, 3::8] = rng.integers(-3, 4, draws[:, 3::8].shape)
    # What is sorted has a mean of about a standard error at most.
    draws += rng.uniform(-1, 1, 10000) * draws.std(axis=0) / patch - draws.mean(axis=0)
    draws = draws.astype(np.float32)
    expected = shapiro_wilk(draws.astype(np.float64))
    widths = [n for n in (4, 8, 16) if n <= device.float_lanes]
    # Of single numbers the larger ones take a CPU's compiler seconds.
    for lanes in {*widths[-1:], widths[-1] if widths and patch > 3 else 1}:
        found = w_of(draws, patch, lanes, device)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(w_of(-draws, patch, lanes, device), found)


@pytest.mark.parametrize("patch", [3, 5, 7])
def test_networks_sort(patch):
    text = expand("swnlm/sorting_networks.h").replace("\\\n", " ")
    (body,) = re.findall(rf"PATCH == {patch}\s*#define SORTING_NETWORK([^#]*)", text)
    n = patch**2
    pairs = [(int(a), int(b)) for a, b in re.findall(r"C\((\d+), (\d+)\)", body)]
    assert {wire for pair in pairs for wire in pair} == set(range(n))
    # A network that sorts zeros and ones sorts everything.
    ones = np.random.default_rng(0).random((n, 20000)) < np.linspace(0, 1, 20000)
    if n == 9:
        ones = np.array([*itertools.product((False, True), repeat=n)]).T
    for a, b in pairs:
        ones[a], ones[b] = ones[a] & ones[b], ones[a] | ones[b]
    assert (ones == np.sort(ones, axis=0)).all()


@pytest.mark.parametrize("n", [9, 25, 49])
def test_weights_and_limits_are_those_of_the_reference(n):
    np.testing.assert_allclose(royston_weights(n), weights_of_order(n)[::-1][: n // 2], rtol=1e-14)
    for alpha in (0.001, 0.05, 0.5):
        assert royston_limit(n, alpha) == pytest.approx(critical_w(n, alpha), rel=1e-12)
    assert royston_limit(n, 0) == 0


def test_lonely_pixels_are_those_of_exact_nl_means(flowing):
    image = image_of(20, 34)
    small = {"patch": 3, "window": 7}
    counts = filtered(image, gd.SWNLM(show="pixels", **small), flowing) - 1
    exact = filtered(image, gd.NLMeansPixelwise(), flowing)
    alone = filtered(image, gd.SWNLM(fewest=1, fallback="keep", **small), flowing)
    for fewest in (1, 8):
        lonely = counts < fewest
        assert 0 < lonely.mean() < 1
        out = filtered(image, gd.SWNLM(fewest=fewest, **small), flowing)
        np.testing.assert_array_equal(out, np.where(lonely, exact, alone))
        kept = filtered(image, gd.SWNLM(fewest=fewest, fallback="keep", **small), flowing)
        np.testing.assert_array_equal(kept, np.where(lonely, image, alone))


def test_clipped_pixels_and_equal_patches_are_lonely(flowing):
    image = image_of(20, 40)
    image[:, :20] = 0
    settings = gd.SWNLM(patch=3, window=7, alpha=0.0, fewest=1, fallback="keep")
    counts = filtered(image, replace(settings, show="pixels"), flowing)
    np.testing.assert_array_equal(counts[:, :15], 1)
    out = filtered(image, settings, flowing)
    np.testing.assert_array_equal(out[:, :15], 0)


def test_it_denoises(device):
    clean = scene(96, 96)
    image = clean + np.random.default_rng(0).normal(0, 20, clean.shape)
    gains = {
        profile: psnr(gd.swnlm(image, sigma=20, profile=profile, device=device), clean)
        for profile in gd.SWNLM.presets
    }
    assert gains["normal"] > gains["paper"] > psnr(image, clean) + 3
