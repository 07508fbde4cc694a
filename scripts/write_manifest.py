"""Write the entries of filters, samples and files into the manifest of the napari plugin.

    python scripts/write_manifest.py [--check]

napari reads src/napari_gpu_denoise/_napari/napari.yaml without importing the package, so every
filter has to stand there. This script writes them from `FILTERS`; run it after adding a filter.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import yaml

from napari_gpu_denoise._napari.loading import PANELS
from napari_gpu_denoise.files import formats, samples
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.measurements.subspace import Subspace

PLUGIN = "napari-gpu-denoise"
MANIFEST = Path(__file__).parents[1] / "src" / "napari_gpu_denoise" / "_napari" / "napari.yaml"
IO = "napari_gpu_denoise._napari.io"
HEAD = "# Filters, samples and files: by scripts/write_manifest.py; the rest is edited here.\n"
# Commands that are edited in the manifest.
BESIDE = {f"{PLUGIN}.{title.lower().replace(' ', '_')}" for title in PANELS}
# Choices of the panel Filter at which it opens: that of `Recommended` first.
OPENED = {"auto": "Denoise", **{kind.name: kind.title for kind in (*FILTERS, Subspace)}}


def manifest(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the entries of all filters and samples as they are now."""
    there = plain["contributions"]
    commands = [each for each in there["commands"] if each["id"] in BESIDE]
    commands += [
        {
            "id": f"{PLUGIN}.open_{name}",
            "title": title,
            "python_name": f"napari_gpu_denoise._napari.commands:open_{name}",
        }
        for name, title in OPENED.items()
    ]
    commands += [
        {
            "id": f"{PLUGIN}.sample_{name}",
            "title": f"Open a sample: {samples.info(name).title}",
            "python_name": f"napari_gpu_denoise._napari.commands:{name}",
        }
        for name in samples.names()
    ]
    # Not in the command palette, as they need a path.
    called = {"enablement": "False"}
    commands += [
        {
            "id": f"{PLUGIN}.read",
            "title": "Open images with scale, units and channels",
            "python_name": f"{IO}.reading:get_reader",
            **called,
        },
        {
            "id": f"{PLUGIN}.write",
            "title": "Save image layers with the record of how they were made",
            "python_name": f"{IO}.writing:write_images",
            **called,
        },
    ]
    reader = {
        "command": f"{PLUGIN}.read",
        "filename_patterns": [f"*{suffix}" for suffix in formats.SUFFIXES],
        "accepts_directories": True,  # OME-Zarr
    }
    written = [each.suffixes if each.written is None else each.written for each in formats.FORMATS]
    writer = {
        "command": f"{PLUGIN}.write",
        "layer_types": ["image+"],
        # The first is what napari appends to a name without one.
        "filename_extensions": [".ome.tif", ".ome.tiff", ".ome.zarr", *itertools.chain(*written)],
        "display_name": "image with record",
    }
    offered = [
        {
            "command": f"{PLUGIN}.sample_{name}",
            "key": name,
            "display_name": samples.info(name).title,
        }
        for name in samples.names()
    ]
    (submenu,) = there["submenus"]
    menus = {
        **there["menus"],
        # napari sorts by groups: widgets would else come after the other commands.
        submenu["id"]: [
            *(
                {
                    "command": f"{PLUGIN}.open_{name}",
                    "group": "1_recommended" if name == "auto" else "2_filters",
                }
                for name in OPENED
            ),
            {"command": f"{PLUGIN}.batch", "group": "3_files"},
        ],
    }
    made = {"commands": commands, "readers": [reader], "writers": [writer]}
    made |= {"menus": menus}
    return {**plain, "contributions": {**there, **made, "sample_data": offered}}


def main() -> int:
    """Write the manifest, or with ``--check`` say whether it is as it should be."""
    before = MANIFEST.read_text(encoding="utf-8")
    made = manifest(yaml.safe_load(before))
    text = HEAD + yaml.safe_dump(made, sort_keys=False, width=100, allow_unicode=True)
    if "--check" in sys.argv:
        return int(text != before)
    MANIFEST.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
