"""The manifest: valid, complete, and leading to things that exist."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from napari_gpu_denoise.files import samples
from napari_gpu_denoise.filters import FILTERS

npe2 = pytest.importorskip("npe2", reason="napari is not installed")

pytestmark = pytest.mark.gui
PLUGIN = "napari-gpu-denoise"


@pytest.fixture(scope="module")
def manifest():
    return npe2.PluginManifest.from_distribution(PLUGIN)


def test_entry_point_leads_to_a_valid_manifest(manifest):
    assert manifest.name == PLUGIN
    assert manifest.is_visible
    manifest.validate_imports()


def test_every_filter_has_a_widget_and_a_menu_entry(manifest):
    widgets = {widget.command: widget.display_name for widget in manifest.contributions.widgets}
    noise = f"{PLUGIN}.estimated_noise"
    assert widgets.pop(noise) == "Estimated noise"
    assert widgets.pop(f"{PLUGIN}.compare") == "Compare"
    assert widgets.pop(f"{PLUGIN}.batch") == "Batch"
    assert [each.command for each in manifest.contributions.menus["napari/layers/visualize"]] == [
        f"{PLUGIN}.open_compare"
    ]
    assert next(iter(widgets.items())) == (f"{PLUGIN}.denoise", "Denoise")
    del widgets[f"{PLUGIN}.denoise"]
    # The menus open panels by commands of their own, which bring those that are open to the front.
    assert [each.command for each in manifest.contributions.menus["napari/layers/measure"]] == [
        f"{PLUGIN}.open_estimated_noise"
    ]
    assert widgets == {f"{PLUGIN}.{kind.name}": kind.title for kind in FILTERS}
    submenus = [item.submenu for item in manifest.contributions.menus["napari/layers/filter"]]
    (submenu,) = manifest.contributions.submenus
    assert submenus == [submenu.id]
    first, *entries, last = [item.command for item in manifest.contributions.menus[submenu.id]]
    assert (first, last) == (f"{PLUGIN}.open_denoise", f"{PLUGIN}.open_batch")
    assert entries == [f"{PLUGIN}.open_{kind.name}" for kind in FILTERS]
    known = {command.id: command.title for command in manifest.contributions.commands}
    assert [known[f"{PLUGIN}.open_{kind.name}"] for kind in FILTERS] == [k.title for k in FILTERS]


def test_the_manifest_is_as_the_script_writes_it():
    script = Path(__file__).parents[2] / "scripts" / "write_manifest.py"
    assert subprocess.run([sys.executable, str(script), "--check"]).returncode == 0, (
        "run python scripts/write_manifest.py"
    )


def test_widget_commands_take_a_viewer(manifest):
    for widget in manifest.contributions.widgets:
        (command,) = [c for c in manifest.contributions.commands if c.id == widget.command]
        found = npe2.manifest.utils.import_python_name(command.python_name)
        parameters = inspect.signature(found.__init__).parameters.values()
        assert "napari.viewer.Viewer" in [p.annotation for p in parameters]


def test_unknown_widget_names_are_refused():
    from napari_gpu_denoise._napari import commands

    with pytest.raises(AttributeError, match="no filter 'no_such'"):
        _ = commands.no_such


def test_every_sample_is_offered(manifest):
    offered = {sample.key: sample.display_name for sample in manifest.contributions.sample_data}
    assert offered == {name: samples.title(name) for name in samples.names()}
