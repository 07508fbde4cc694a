"""A noise model added from outside: the one of docs/develop/add_a_noise_model.md."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.noise import models

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "add_a_noise_model.md"
WIDTH = 0.3


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """Return the class that the page describes."""
    text = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    path = tmp_path_factory.mktemp("added") / "multiplicative.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("multiplicative", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "multiplicative", module)
        spec.loader.exec_module(module)
        patch.setattr(models, "MODELS", (*models.MODELS, module.Multiplicative))
        yield module.Multiplicative


@pytest.fixture(scope="module")
def image():
    y, x = np.mgrid[:128, :128]
    clean = 40 + 60 * ((x // 24 + y // 32) % 2) + 0.6 * x
    return clean * np.random.default_rng(0).uniform(1 - WIDTH, 1 + WIDTH, clean.shape)


@pytest.mark.parametrize("name", ["auto", "multiplicative"])
def test_it_is_found_and_measured(added, image, name):
    found = gd.estimate_noise(image, model=name)
    (model,) = found.models
    assert type(model) is added
    assert model.width == pytest.approx(WIDTH, rel=0.1)
    assert found.sigma[0] == pytest.approx(np.sqrt(np.mean(image**2) * WIDTH**2 / 3), rel=0.15)
    assert found.verdict().startswith(f"Multiplicative, width {model.width:.3g}")
    assert "Multiplicative, width" in found.summary()
    again = gd.NoiseEstimate.from_dict(json.loads(json.dumps(found.as_dict())))
    assert again.models == found.models


def test_other_noise_is_not_taken_for_it(added):
    image = 100 + np.arange(128) + np.random.default_rng(0).normal(0, 10, (128, 128))
    assert gd.estimate_noise(image).name == "gaussian"


def test_the_host_stabilises_it(added):
    model = added(WIDTH)
    clean = np.repeat([20.0, 500.0], 200_000).reshape(2, -1)
    seen = model.stabilise(
        clean * np.random.default_rng(1).uniform(1 - WIDTH, 1 + WIDTH, clean.shape)
    )
    assert seen.std(axis=1, dtype=float) == pytest.approx([model.sigma_after] * 2, rel=0.01)
    back = model.inverse(seen.mean(axis=1, dtype=float))
    assert back == pytest.approx(clean[:, 0], rel=2e-3)


def test_the_command_line_offers_it(added):
    parser = build_parser(["estimate"])
    args = parser.parse_args(["estimate", "image.tif", "--model", "multiplicative"])
    assert args.model == "multiplicative"


def test_a_wrong_parameter_is_refused(added):
    with pytest.raises(gd.errors.SettingsError, match="does not fit multiplicative noise"):
        added(-1)
