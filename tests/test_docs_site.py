"""The documentation site builds without a warning and shows every public name and setting."""

from __future__ import annotations

import html
import inspect
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import napari_gpu_denoise as gd
from napari_gpu_denoise.protocol.settings import setting_fields

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of a site built in strict mode, where a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    with pytest.MonkeyPatch.context() as patch:
        # The site shows no lines of the source, which take a third of the time to find.
        patch.setattr(inspect, "findsource", Mock(side_effect=OSError))
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


def test_every_public_name_is_on_an_api_page(site):
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "api").rglob("*.html"))
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'<h\d id="([^"]+)"', pages)}
    names = {name.lower() if name == "FILTERS" else name for name in gd.__all__}
    assert names - {"__version__"} <= anchors
    assert not [anchor for anchor in anchors if anchor.startswith("_")]


@pytest.mark.parametrize("kind", gd.FILTERS)
def test_settings_are_on_the_api_page(site, kind):
    page = (site / "api" / "filters" / "index.html").read_text(encoding="utf-8")
    start = re.search(rf'<h2 id="[^"]*\.{kind.__name__}"', page).start()
    rows = [
        [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", page[start:].split("</table>")[0], re.DOTALL)
    ]
    assert [(row[0], row[1], row[4]) for row in rows if row] == [
        (field.name, repr(field.default), field.metadata["help"]) for field in setting_fields(kind)
    ]


def test_links_between_pages_and_files_of_the_repository(site):
    overview = (site / "overview" / "index.html").read_text(encoding="utf-8")
    assert 'href="../performance/"' in overview
    assert 'href="../LICENSE.txt"' in overview
    assert 'href="sample_data/"' in (site / "index.html").read_text(encoding="utf-8")
