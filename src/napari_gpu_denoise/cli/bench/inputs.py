"""What filters are timed on."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.protocol.filter import Filter

SIGMA = 20.0


def synthetic(shape: tuple[int, ...], sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    """Return a noisy test image: smooth shading, edges and texture, levels 0 to 255, float32."""
    ny, nx = shape[-2:]
    y, x = np.mgrid[:ny, :nx].astype(np.float32)
    clean = 110 + 50 * np.sin(x / 97) * np.cos(y / 71)
    clean += 40 * (((x // 64) + (y // 48)) % 2)
    clean += 15 * np.sin(x * 0.7 + y * 0.3) * (np.sin(x / 200) > 0)
    noise = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return (clean + sigma * noise).astype(np.float32)


def shape_for(settings: Filter, shape: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Return the shape of an input, with the axes that a filter needs, and their names.

    `shape` is (y, x) or (planes, y, x). A filter over time takes planes as frames, one of volumes
    as slices; both make 16 of (y, x). A filter of volumes over time takes (t, z, y, x), and makes
    four volumes of one. One of joint channels takes them as channels, and makes three.
    """
    axes = "T" * settings.over_time + "Z" * ("Z" in settings.joint)
    axes = axes or "C" * ("C" in settings.joint)
    while len(shape) < len(axes) + 2:
        shape = (3 if axes == "C" else 4 if len(shape) == 3 else 16, *shape)
    return tuple(shape), "." * (len(shape) - 2 - len(axes)) + axes + "YX"


def stack_for(settings: Filter, shape: tuple[int, ...], frames: int) -> tuple[tuple[int, ...], str]:
    """Return the shape of a stack of so many frames, or volumes, and the names of its axes."""
    shape, axes = shape_for(settings, shape[-2:])
    if settings.over_time:
        return (frames, *shape[1:]), axes
    return (frames, *shape), "T" + axes
