"""The format that docs/develop/add_a_format.md adds keeps to what all formats do."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from pathlib import Path

import pytest

from files.contract import FormatContract, apart
from napari_gpu_denoise.files import formats

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "add_a_format.md"


@pytest.fixture(autouse=True)
def added(monkeypatch):
    """Add the format to those that are known."""
    text = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    module = types.ModuleType("nrrd")
    monkeypatch.setitem(sys.modules, "nrrd", module)
    exec(textwrap.dedent(text), vars(module))
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, module.FORMAT))
    monkeypatch.setattr(formats, "SUFFIXES", (*formats.SUFFIXES, *module.FORMAT.suffixes))


def enlarged(path: Path) -> None:
    """Declare more pixels than there are."""
    path.write_bytes(path.read_bytes().replace(b"sizes: ", b"sizes: 9999"))


class TestNrrd(FormatContract):
    ending, results = ".nrrd", (".nrrd",)
    axes, types = ("YX", "ZYX"), ("uint16", "uint8", "int16", "float32")
    steps = apart("millimeter", Z=1.5, Y=0.25, X=0.2)
    modules = ()
    lies = (("is cut short", enlarged),)

    def write(self, path, image, axes):
        fields = {
            "type": {"float32": "float"}.get(image.dtype.name, image.dtype.name),
            "dimension": image.ndim,
            "sizes": " ".join(map(str, image.shape[::-1])),
            "spacings": " ".join(str(self.steps[a][0]) for a in axes[::-1]),
            "endian": "little",
            "encoding": "raw",
        }
        lines = ["NRRD0004", "# of another program", *(f"{k}: {v}" for k, v in fields.items())]
        path.write_bytes("\n".join(lines).encode() + b"\n\n" + image.tobytes())

    def check_kept(self, before, after):
        assert b"# of another program\n" in after.read_bytes()
