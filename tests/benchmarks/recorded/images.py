"""Small images with noise of every kind; the same in each run."""

from __future__ import annotations

from functools import cache

import numpy as np

NY, NX, NT = 48, 56, 6


def scene(*shape: int) -> np.ndarray:
    """Return a clean image, 30 to 220: shading, edges and texture that move from plane to plane."""
    *outer, ny, nx = shape
    y, x = np.mgrid[:ny, :nx].astype(np.float64)
    planes = []
    for k in range(int(np.prod(outer, dtype=int))):
        clean = 110 + 30 * np.sin((x + k) / 17) * np.cos(y / 13)
        clean += 40 * (((x + k) // 19 + y // 14) % 2)
        clean += 20 * np.sin(0.9 * x + 0.4 * y) * (y > 0.6 * ny)
        planes.append(clean)
    return np.reshape(planes, shape)


def random(seed: int = 0) -> np.random.Generator:
    """Return a source of random numbers."""
    return np.random.default_rng(seed)


@cache
def _noisy(shape: tuple[int, ...], sigma: float, seed: int) -> np.ndarray:
    return scene(*shape) + random(seed).normal(0, sigma, shape)


def noisy(*shape: int, sigma: float = 15.0, seed: int = 0, dtype="float32") -> np.ndarray:
    """Return the scene with white Gaussian noise; integers are rounded and clipped to 0 … 255."""
    image = _noisy(shape or (NY, NX), sigma, seed)
    if np.dtype(dtype).kind in "iu":
        image = np.clip(np.rint(image), 0, min(255, np.iinfo(dtype).max))
    return image.astype(dtype)


def movie(dtype="uint16", frames: int = NT) -> np.ndarray:
    """Return noisy frames, (t, y, x)."""
    return noisy(frames, NY, NX, dtype=dtype)


def colour(*outer: int, dtype="uint8") -> np.ndarray:
    """Return noisy RGB, (…, y, x, 3)."""
    planes = noisy(*outer, 3, NY, NX, seed=5, dtype=dtype)
    return np.ascontiguousarray(np.moveaxis(planes, -3, -1))


def photons(*shape: int, gain: float = 2.0, read: float = 3.0, offset: float = 100.0) -> np.ndarray:
    """Return the scene as a camera records few photons, uint16."""
    light = np.maximum(scene(*shape), 0) / 3
    rng = random(1)
    return np.clip(
        np.rint(offset + gain * rng.poisson(light) + rng.normal(0, read, shape)), 0, 65535
    ).astype(np.uint16)


def magnitudes(*shape: int, sigma: float = 12.0) -> np.ndarray:
    """Return the scene as magnitudes of MRI with an empty background, float32."""
    clean = scene(*shape)
    clean[..., : shape[-1] // 3] = 0
    rng = random(2)
    real = clean + rng.normal(0, sigma, shape)
    return np.hypot(real, rng.normal(0, sigma, shape)).astype(np.float32)


def speckled(*shape: int, looks: float = 4.0) -> np.ndarray:
    """Return the scene with multiplicative gamma noise, float32."""
    return (scene(*shape) * random(3).gamma(looks, 1 / looks, shape)).astype(np.float32)


def correlated(*shape: int, sigma: float = 12.0) -> np.ndarray:
    """Return the scene with noise that neighbouring pixels share, float32."""
    noise = random(4).normal(0, 1, shape)
    noise = noise + np.roll(noise, 1, -1) + 0.5 * np.roll(noise, 1, -2)
    return (scene(*shape) + sigma * noise / noise.std()).astype(np.float32)


def table(along_x: float = 0.5, along_y: float = 0.3) -> np.ndarray:
    """Return an autocorrelation of noise, (5, 5)."""
    lags = np.arange(5)
    return np.outer(along_y**lags, along_x**lags)


# Name, pixels and sigma; made of one image so that types can be compared with each other.
def _wide(dtype: str, offset: int, factor: int, shape) -> np.ndarray:
    steps = np.rint(_noisy(shape, 15.0, 0) * factor).astype(np.int64)
    if dtype == "uint64":
        return (steps.astype(np.uint64) + np.uint64(offset)).astype(dtype)
    return (steps + offset).astype(dtype)


def types(*shape: int) -> dict[str, tuple[np.ndarray, float]]:
    """Return the scene in every type and range of grey levels, with its sigma."""
    plain = _noisy(shape, 15.0, 0)
    return {
        "uint8": (noisy(*shape, dtype="uint8"), 15.0),
        "int8": ((noisy(*shape, dtype="uint8") // 2).astype(np.int8), 7.0),
        "uint16": (noisy(*shape, dtype="uint16") * np.uint16(200), 3000.0),
        "uint16 big endian": (noisy(*shape, dtype="uint16").astype(">u2"), 15.0),
        "int16 negative": (_wide("int16", -120, 1, shape), 15.0),
        "int32 offset": (_wide("int32", 2**30, 1000, shape), 15000.0),
        "uint32 full": (_wide("uint32", 0, 2**23, shape), 15.0 * 2**23),
        "uint64 wide": (_wide("uint64", 2**63, 2**40, shape), 15.0 * 2**40),
        "int64 negative": (_wide("int64", -(2**62), 1, shape), 15.0),
        "float16": (plain.astype(np.float16), 15.0),
        "float32": (plain.astype(np.float32), 15.0),
        "float32 offset": ((plain + 1e5).astype(np.float32), 15.0),
        "float32 tiny": ((plain * 1e-32).astype(np.float32), 15e-32),
        "float32 huge": ((plain * 1e33).astype(np.float32), 15e33),
        "float64": (plain.copy(), 15.0),
        "float64 offset": (plain + 1e12, 15.0),
        "float64 huge": (plain * 1e200, 15e200),
        "constant": (np.full(shape, 37, np.uint8), 5.0),
        "bool": (plain > 120, 0.5),
    }
