"""What the isoline filter saw: classes and directions."""

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from scenes import noisy


def slope(angle: float, ny: int = 60, nx: int = 64) -> np.ndarray:
    """Return a wave whose lines of equal level run at an angle, degrees counter-clockwise."""
    y, x = np.mgrid[:ny, :nx]
    across = x * np.sin(np.deg2rad(angle)) + y * np.cos(np.deg2rad(angle))
    clean = 120 + 50 * np.sin(across / 3)
    return clean + np.random.default_rng(1).normal(0, 5, clean.shape)


@pytest.mark.parametrize("angle", [0.0, 22.5, 90.0, 123.75])
@pytest.mark.parametrize("choice", ["soft", "hard"])
def test_directions_are_degrees_counter_clockwise(device, angle, choice):
    maps = gd.isoline_maps(slope(angle), 5, choice=choice, device=device)
    assert maps.period == (180 if choice == "soft" else 360)
    assert maps.directions.dtype == np.float32
    assert maps.directions.min() >= 0 and maps.directions.max() < maps.period
    assert not np.any(maps.directions % 11.25)
    # Where the image is mirrored its lines have another direction.
    inner = maps.directions[8:-8, 8:-8]
    off = (inner - angle + 90) % 180 - 90
    assert np.mean(np.abs(off) <= 11.25) > (0.95 if choice == "soft" else 0.4)
    counts = np.bincount((inner % 180 / 11.25).astype(int).ravel())
    assert counts.argmax() * 11.25 == angle


def test_classes_name_what_is_there(device):
    noise = np.random.default_rng(3).normal(0, 8, (60, 80))
    image = 100 + noise
    image[:, 40:] += 80
    found = gd.isoline_maps(image, 8, device=device).classes
    assert found.dtype == np.uint8 and found.shape == image.shape
    assert np.mean(found[:, 38:42] == 1) > 0.95
    sides = np.concatenate([found[:, :28], found[:, 52:]])
    assert np.mean(sides == 0) > 0.8
    assert not np.any(sides == 1)
    line = 100 + noise
    line[:, 39:42] += 24
    found = gd.isoline_maps(line, 8, device=device).classes
    assert np.mean(found[:, 39:42] == 2) > 0.8


def test_methods_without_classes(device):
    image = noisy(31, 37)
    assert gd.isoline_maps(image, 20, method="pi-ld", device=device).classes is None
    for choice in ("soft", "hard"):
        maps = gd.isoline_maps(image, 20, method="pi-pd", choice=choice, device=device)
        assert np.all(maps.classes == 2)


@pytest.mark.parametrize("noise", ["additive", "multiplicative"])
def test_nothing_is_seen_without_noise(device, noise):
    image = noisy(40, 44)
    sigma = np.full(image.shape, 20.0)
    whole = gd.isoline_maps(image, sigma, criterion=noise, device=device)
    sigma[10:20, 5:30] = 0
    maps = gd.isoline_maps(image, sigma, criterion=noise, device=device)
    there = sigma > 0
    assert not maps.classes[~there].any() and not maps.directions[~there].any()
    assert whole.directions[~there].any()
    # Around the hole the filter sees less noise; further away it sees the same.
    assert np.mean(maps.directions[there] == whole.directions[there]) > 0.8
    nothing = gd.isoline_maps(image, 0, criterion=noise, device=device)
    assert not nothing.classes.any() and not nothing.directions.any()


def test_pixels_that_are_not_finite(device):
    image = noisy(40, 44)
    whole = gd.isoline_maps(image, 20, device=device)
    image[20, 22], image[3, 4] = np.nan, -np.inf
    with pytest.raises(errors.NonFiniteError):
        gd.isoline_maps(image, device=device)
    maps = gd.isoline_maps(image, 20, nonfinite="keep", device=device)
    for values in (maps.classes, maps.directions):
        assert np.isfinite(values).all()
        assert values[20, 22] == values[3, 4] == 0
    assert np.mean(maps.directions == whole.directions) > 0.8


def test_joined_channels_have_one_map(device):
    colour = np.stack([noisy(40, 44, seed=k) for k in range(3)], axis=-1)
    joint = gd.isoline_maps(colour, 20, axes="YXS", device=device)
    assert joint.classes.shape == joint.directions.shape == (40, 44)
    luminance = gd.isoline_maps(colour.mean(axis=-1), 20 / 3**0.5, device=device)
    assert np.mean(joint.directions == luminance.directions) > 0.99
    assert np.mean(joint.classes == luminance.classes) > 0.99
    apart = gd.isoline_maps(colour, 20, axes="YXS", channels="separate", device=device)
    assert apart.classes.shape == apart.directions.shape == colour.shape
    alone = gd.isoline_maps(colour[..., 1], 20, device=device)
    np.testing.assert_array_equal(apart.directions[..., 1], alone.directions)
    assert np.any(joint.directions != alone.directions)
    # A channel without noise does not hide what the others show.
    shared = {"axes": "YXS", "channels": "joint", "device": device}
    seen = gd.isoline_maps(colour, (0, 20, 20), **shared)
    others = gd.isoline_maps(colour[..., 1:], 20, **shared)
    np.testing.assert_array_equal(seen.directions, others.directions)
    stack = np.stack([colour, colour[::-1]])
    assert gd.isoline_maps(stack, 20, axes="TYXS", device=device).classes.shape == (2, 40, 44)


def test_frames_are_those_of_the_whole(device):
    stack = noisy(4, 40, 44, dtype="uint16")
    for sigma in (None, (20, 10, 0, 30)):
        whole = gd.isoline_maps(stack, sigma, axes="TYX", device=device)
        part = gd.isoline_maps(stack, sigma, axes="TYX", frames=slice(1, 3), device=device)
        np.testing.assert_array_equal(part.classes, whole.classes[1:3])
        np.testing.assert_array_equal(part.directions, whole.directions[1:3])
    image = stack.astype(np.float32)
    image[2, 5, 6] = np.nan
    part = gd.isoline_maps(image, 20, axes="TYX", frames=2, nonfinite="keep", device=device)
    assert part.directions.shape == (1, 40, 44) and part.directions[0, 5, 6] == 0
    assert np.isfinite(part.directions).all()


def test_tiles_change_nothing(device):
    image = noisy(230, 200)
    whole = gd.isoline_maps(image, 20, device=device)
    seen = []
    tiled = gd.isoline_maps(
        image,
        20,
        device=device,
        memory_limit=1 << 21,
        progress=lambda done, total: seen.append((done, total)),
    )
    np.testing.assert_array_equal(tiled.classes, whole.classes)
    np.testing.assert_array_equal(tiled.directions, whole.directions)
    total = seen[0][1]
    assert total > 2
    assert {total for _, total in seen} == {total}
    assert sorted({done for done, _ in seen}) == list(range(total + 1))


def test_settings_reach_the_filter(device):
    image = noisy(40, 44)
    given = gd.isoline_maps(image, 20, settings=gd.Isoline(show="classes"), device=device)
    plain = gd.isoline_maps(image, 20, device=device)
    np.testing.assert_array_equal(given.classes, plain.classes)
    np.testing.assert_array_equal(given.directions, plain.directions)
    other = gd.isoline_maps(image, 20, segment_length=3, device=device)
    assert np.any(other.directions != plain.directions)
    speckled = gd.isoline_maps(image, criterion="multiplicative", looks=4, device=device)
    assert np.any(speckled.classes != plain.classes)
    with pytest.raises(errors.SettingsError):
        gd.isoline_maps(image, 20, width=3, device=device)
