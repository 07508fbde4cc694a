"""Plans declare their buffers: all that they use, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.opencl.memory import Arena, borrow, release_memory
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol import plan as plans
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.protocol.tiles import Span, Tile
from napari_gpu_denoise.run.flow.tile_flow import bytes_per_pixel
from scenes import first_pass

# Used only where frames differ in brightness or in noise.
OPTIONAL = {"frame links"}
SHAPE = (18, 21)
TABLE = tuple(tuple(a * b for b in (1, 0.6, 0.2, 0, 0)) for a in (1, 0.6, 0.2, 0, 0))
SMALL = {
    gd.NLMeans: {"window": 7, "neighbours": 8},
    gd.NLMeansPixelwise: {"window": 7},
    gd.BM3D: {"window_basic": 9, "window_final": 9},
    gd.VBM3D: {"frames_before": 1, "frames_after": 1, "window_nearest": 5},
    gd.Isoline: {},
    gd.BM4D: {"window_basic": 3, "window_final": 3, "neighbours_basic": 4, "neighbours_final": 4},
    gd.SWNLM: {"window": 5},
}
MORE = {
    gd.NLMeans: ({"slices": 1}, {"frames_before": 1, "frames_after": 1}),
    gd.NLMeansPixelwise: (
        {"slices": 1, "patch_slices": 1},
        {"frames_before": 1, "frames_after": 1},
        {"show": "pixels"},
    ),
    gd.BM3D: ({"prefiltered": True},),
    gd.VBM3D: ({"frames_after": 0},),
    gd.Isoline: (
        {"staircase": 0},
        {"thickness": 1},
        {"method": "pi-ld"},
        {"choice": "hard"},
        {"criterion": "multiplicative"},
        {"show": "directions"},
    ),
    gd.BM4D: (
        {"cube": "1x8x8"},
        {"frames_before": 1, "frames_after": 1},
    ),
    gd.SWNLM: ({"show": "pixels"},),
}


def choices():
    """Yield every filter with each profile, setting that matters, and way to filter channels."""
    for kind in FILTERS:
        starts = [kind.of(profile=name) for name in kind.presets]
        starts += [kind(**changes) for changes in MORE.get(kind, ())]
        for start in starts:
            small = {k: v for k, v in SMALL.get(kind, {}).items() if getattr(start, k) > v}
            settings = dataclasses.replace(start, **small)
            known = {spec.name: spec.metadata["choices"] for spec in setting_fields(kind)}
            for channels in ("separate", "opponent", "joint"):
                if "channels" not in known:
                    yield kind, settings, channels
                    break
                if channels not in known["channels"]:
                    continue
                speckle = getattr(settings, "criterion", "") == "multiplicative"
                if not (speckle and channels == "opponent"):
                    yield kind, dataclasses.replace(settings, channels=channels), channels


CASES = [
    pytest.param(settings, id=f"{kind.name}-{channels}-{number}")
    for number, (kind, settings, channels) in enumerate(choices())
]


class Watched(dict):
    """Buffers that know which of them were asked for."""

    def __init__(self, *given):
        super().__init__(*given)
        self.used, self.sent = set(), {}

    def __getitem__(self, name):
        self.used.add(name)
        return super().__getitem__(name)


@pytest.fixture
def watched(monkeypatch):
    """Return all buffers that plans allocate from here on."""
    found = []

    def allocate(arena, sizes):
        found.append(Watched(allocated(arena, sizes)))
        # A plan that another one runs uses buffers of that one, which are no smaller.
        held = {name: buffer.size for name, buffer in found[0].items()}
        assert {name: buffer.size for name, buffer in found[-1].items()} == {
            name: max(nbytes, 4, held.get(name, 0)) for name, nbytes in sizes.items()
        }
        return found[-1]

    allocated = plans.allocated
    release_memory()
    monkeypatch.setattr(plans, "allocated", allocate)
    return found


def enqueue_nothing(queue, *_, **__):
    import pyopencl as cl

    return cl.enqueue_marker(queue)


def run(settings, device, sigma, models=()):
    image = np.random.default_rng(0).normal(100, 20, (2, 2, 3, *SHAPE)).astype(np.float32)
    noise = {"noise": models} if models else {"sigma": sigma}
    return gd.denoise(image, settings, axes="TZSYX", device=device, **noise)


@pytest.mark.parametrize("is_map", [False, True], ids=["even", "map"])
@pytest.mark.parametrize("settings", CASES)
def test_plans_use_what_they_declare(device, watched, monkeypatch, settings, is_map):
    # Who uses what is decided on the host. Other tests run these kernels.
    monkeypatch.setattr(Arena, "kernel", lambda *_, **__: enqueue_nothing)
    run(settings, device, np.full(SHAPE, 20.0) + np.eye(*SHAPE) if is_map else 20.0)
    assert watched or type(settings) not in MORE  # a simple filter needs no buffers
    used = set().union(*(held.used for held in watched))
    assert {name for held in watched for name in held} - used <= OPTIONAL


@pytest.mark.parametrize("channels", ["separate", "opponent", "joint"])
def test_plans_for_correlated_noise_do_as_well(device, watched, monkeypatch, channels):
    monkeypatch.setattr(Arena, "kernel", lambda *_, **__: enqueue_nothing)
    settings = gd.BM3D(channels=channels, **SMALL[gd.BM3D])
    run(settings, device, None, tuple(Correlated(s, TABLE) for s in (15.0, 20.0, 25.0)))
    assert watched
    assert all(held.used == {*held} for held in watched)


def test_nothing_is_allocated_in_passing():
    folder = Path(gd.__file__).parent / "filters"
    assert not [p for p in folder.rglob("*.py") if re.search(r"arena\.buffer\(", p.read_text())]


@pytest.mark.parametrize("kind", FILTERS)
def test_memory_of_a_pixel_is_that_of_a_large_tile(device, kind):
    settings = kind()
    with borrow(session(device)) as arena:
        plan = settings.plan(arena)
        deep = 16 if any(settings.reach.z) else 1
        tile = Tile(0, *map(Span.whole, (1, deep, 2048, 2048)))
        sizes = plan.buffers(tile, *((1,) if settings.over_time else ()))
        each = bytes_per_pixel(plan, settings) - 16
        assert sum(sizes.values()) / deep / 2048**2 == pytest.approx(each, rel=0.1)
        assert bytes_per_pixel(plan, settings, is_map=True) >= each + 24


@pytest.mark.parametrize(("channels", "copies"), [("separate", []), ("joint", ["padded noisy"])])
def test_a_first_pass_copies_what_is_not_searched_alone(device, channels, copies):
    with borrow(session(device)) as arena:
        plan = first_pass(gd.BM3D(channels=channels)).plan(arena)
        sizes = plan.buffers(Tile(0, *map(Span.whole, (1, 1, 40, 45)), 2))
    assert [name for name in sizes if name.startswith("padded ")] == copies
