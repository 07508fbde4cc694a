"""The documentation: its code and commands run and print what it says, its links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import shlex
import sys
import textwrap
import tomllib
import types
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nibabel
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise import errors
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.cli.arguments import build_parser
from napari_gpu_denoise.cli.failures import EXIT_TEXTS, exit_code
from napari_gpu_denoise.files import FORMAT_NAMES
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl import program as source
from napari_gpu_denoise.protocol.settings import setting_fields
from scenes import noisy, psnr, scene
from tools.conftest import load

ROOT = Path(__file__).resolve().parents[1]
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
PAGES = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "kernels" / "README.md",
    ROOT / "sample_data" / "README.md",
]
NOT_RUN = "<!-- not run: "
SPEED, NLM_ON_GPU, BM3D_ON_GPU = "Speed and quality", "NL-means on a GPU", "BM3D on a GPU"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block of a page; `runs` is False when a comment before it says so."""

    kind: str
    text: str
    line: int
    runs: bool


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()].rstrip().rsplit("\n", 1)[-1]
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(fence[1], fence[2], line, not before.startswith(NOT_RUN)))
    return found


def with_blocks(kind: str) -> list[Path]:
    """Return the pages of the guide that hold a block of a kind that runs."""
    return [page for page in GUIDE if any(b.kind == kind and b.runs for b in blocks(page))]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def assert_printed(printed: str, said: str, where: str) -> None:
    """Compare what was printed with what a page says.

    There "…" stands for anything in a line, alone in its line for any number of lines.
    """
    lines = [
        r"[\s\S]*" if line == "…" else ".*".join(map(re.escape, line.split("…")))
        for line in said.rstrip().splitlines()
    ]
    fits = re.fullmatch("\n".join(lines), printed.rstrip())
    assert fits, f"{where} says\n{said}\nbut this was printed:\n{printed}"


@pytest.mark.parametrize("page", with_blocks("python"), ids=_name)
def test_python_blocks_run_and_print_what_is_said(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "guide"}
    listed = blocks(page)
    for block, following in zip(listed, [*listed[1:], None], strict=True):
        if block.kind != "python" or not block.runs:
            continue
        printed = io.StringIO()
        # As many lines down as it stands in the page, for the traceback.
        code = compile("\n" * block.line + block.text, _name(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        said = following.text if following is not None and following.kind == "text" else ""
        assert_printed(printed.getvalue(), said, f"{_name(page)}, line {block.line},")


def write_files_of_the_guide(folder: Path) -> None:
    """Write small files of the formats that ``files.md`` names and no sample has."""
    from files import test_dicom, test_video
    from files.test_microscopes import write_czi, write_lif

    image = noisy(12, 64, 72).clip(0).astype(np.uint16)
    write_czi(folder / "cells.czi", image.reshape(3, 2, 2, 64, 72))
    write_lif(folder / "positions.lif", image=image.reshape(3, 2, 2, 64, 72))
    test_dicom.series(folder / "head", image[:4])
    test_video.saved(folder / "heart.avi", image.clip(0, 255).astype(np.uint8), "ffv1", "gray")
    for name, volume in ("t1", image[:6].T), ("dwi", image.reshape(6, 2, 64, 72).T):
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), folder / f"{name}.nii.gz")
    (folder / "dwi.bval").write_text("0 0 1000 1000 1000 1000", encoding="utf-8")


@pytest.mark.parametrize("page", with_blocks("console"), ids=_name)
def test_commands_run_and_print_what_is_said(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name == "files.md":
        write_files_of_the_guide(tmp_path)
    for block in blocks(page):
        if block.kind != "console" or not block.runs:
            continue
        for session in block.text.split("$ ")[1:]:
            command, _, said = session.partition("\n")
            words = shlex.split(command)
            assert words[0] == "gpu-denoise", f"{_name(page)}: {command} is not ours to run"
            printed = io.StringIO()
            end = words.index(">") if ">" in words else len(words)
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                main(words[1:end])
            if words[end:]:  # written to a file, as a shell does
                Path(words[-1]).write_text(printed.getvalue(), encoding="utf-8")
                printed = io.StringIO()
            # What was complained of comes last here; a terminal mixes the two as they come.
            assert_printed(printed.getvalue(), said, f"{_name(page)}: {command}")


@cache
def options() -> dict[str, set[str]]:
    """Return the options of each command of the command line, and of each script with a parser."""
    parser = build_parser(["assess"])
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    found = {"": set(parser._option_string_actions)}
    for name, command in commands.choices.items():
        known = command._option_string_actions.items()
        found[name] = {option for option, each in known if each.help != argparse.SUPPRESS}
        for part in command._actions:
            if isinstance(part, argparse._SubParsersAction):
                each = (set(inner._option_string_actions) for inner in part.choices.values())
                found[name] = found[name].union(*each)
    for name in "bench", "quality", "subspace", "warm":
        found[f"{name}.py"] = set(load(name).build_parser()._option_string_actions)
    return found


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_options_named_exist(page):
    known = options()
    every = set().union(*known.values())
    text = page.read_text(encoding="utf-8")
    for command in re.findall(r"(?:gpu-denoise |python tools/)([^`\n]*)", text):
        words = command.split()
        given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        name = next((word for word in words if word in known), "")
        assert given <= known[name], f"{_name(page)}: {command}"
    for code in re.findall(r"`(-[^`\n]*)`", text) if page in GUIDE else ():
        assert code.split()[0].split("=")[0] in every, f"{_name(page)}: {code}"


def test_every_option_is_in_the_guide_or_a_setting_of_the_methods_page():
    text = (ROOT / "docs" / "guide" / "command_line.md").read_text(encoding="utf-8")
    for kind in FILTERS:
        settings = {f"--{field.name.replace('_', '-')}" for field in setting_fields(kind)}
        settings |= {f"--no-{name[2:]}" for name in settings}
        known = options()[kind.name.replace("_", "-")]
        for option in known - settings - {"-h", "--help", "--output"}:
            assert re.search(rf"{option}\b", text), f"{option} is not in the guide"


def anchors(page: Path) -> set[str]:
    """Return what can be linked to in a page: its headings as the usual readers name them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_lead_somewhere(page):
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{_name(page)} links to {link}, which is not there"
        assert not anchor or anchor in anchors(target), f"{_name(page)}: no heading for {link}"


# Pages for developers name files relative to the folder that they are about.
@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name != "develop"], ids=_name)
def test_files_named_exist(page):
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    package = "src/napari_gpu_denoise"
    folders = ("", package, f"{package}/noise", "tests/benchmarks", "tools")
    for path in re.findall(r"`([a-z_0-9*/]+\.(?:py|cl|h))`", text):
        found = [ROOT / folder / path for folder in folders] + [page.parent / path]
        there = any(list(place.parent.glob(place.name)) for place in found)
        there = there or ("/" not in path and any((ROOT / "kernels").rglob(path)))
        assert there, f"{_name(page)} names {path}, which is not there"


def test_every_promise_has_its_test():
    text = (ROOT / "docs" / "guide" / "promises.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)::(\w+)`", text)
    assert len(named) > 20
    for file, test in named:
        # In a class of tests that others inherit, too.
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_every_page_is_in_the_index():
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / link.partition("#")[0]).resolve()
        for link in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    missing = set((ROOT / "docs").rglob("*.md")) - linked - {index}
    assert not missing


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading, without its head."""
    text = page.read_text(encoding="utf-8")
    assert f"\n## {heading}\n" in text, f"{page} has no section {heading!r}: write it"
    text = text.split(f"\n## {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0]
    return [
        [cell.strip() for cell in re.split(r" \|(?= )", line.strip("|"))]
        for line in table.splitlines()[2:]
    ]


def test_speeds_of_the_readme_are_those_of_the_performance_page():
    def column(heading: str, row: int, *cells: int) -> list[str]:
        found = rows(ROOT / "docs" / "performance.md", heading)[row]
        return [re.search(r"[\d.]+", found[cell])[0] for cell in cells]

    def told(cells: list[str]) -> list[float]:
        values = [cell.split() for cell in cells]
        return [float(value) * (1000 if unit == "s" else 1) for value, unit in values]

    kernels, calls, cores, quality = (cells[1:] for cells in rows(ROOT / "README.md", SPEED))
    bm3d = {name: 2 + k for k, name in enumerate(("fast", "normal", "fixed", "high"))}
    chosen = [bm3d[name] for name in ("fast", "normal", "high")]
    measured = {
        "kernels": [*column(NLM_ON_GPU, 2, 1, 2), *column(BM3D_ON_GPU, 0, *chosen)],
        "calls": [*column(NLM_ON_GPU, 3, 1, 2), *column(BM3D_ON_GPU, 1, *chosen)],
        "cores": [column("On a CPU", row, 1)[0] for row in range(5)],
    }
    for cells, there in zip((kernels, calls, cores), measured.values(), strict=True):
        assert told(cells) == pytest.approx([float(value) for value in there], rel=0.05)
    nl_means = column("Quality of NL-means", 0, 1), column("Quality of NL-means", 1, 1)
    others = (column("Quality of BM3D", row, 2) for row in (0, 1, 3))
    there = [float(value[0]) for value in (*nl_means, *others)]
    assert told(quality) == pytest.approx(there, abs=0.006)


@pytest.mark.parametrize("kind", FILTERS)
def test_settings_of_the_methods_page(kind):
    page = ROOT / "docs" / "methods" / f"{kind.name}.md"
    said = {}
    for names, defaults, *_ in rows(page, "Settings"):
        names = re.findall(r"`(\w+)`", names)
        said |= dict(zip(names, map(str.strip, defaults.split(",")), strict=True))
    assert said == {field.name: str(field.default) for field in setting_fields(kind)}


@pytest.mark.parametrize("kind", [kind for kind in FILTERS if len(kind.presets) > 1])
def test_profiles_of_the_methods_page(kind):
    page = ROOT / "docs" / "methods" / f"{kind.name}.md"
    said = {}
    for name, changes, *_ in rows(page, "Profiles"):
        said[name.strip("`")] = dict(re.findall(r"`(\w+)=([^`]*)`", changes))
    assert said == {
        name: {key: str(value) for key, value in changes.items()}
        for name, changes in kind.presets.items()
    }


def test_exit_codes_and_errors_of_the_guide():
    codes = rows(ROOT / "docs" / "guide" / "troubleshooting.md", "Exit codes")
    assert [(int(code), text) for code, text in codes] == list(EXIT_TEXTS)
    found = rows(ROOT / "docs" / "guide" / "troubleshooting.md", "Error names")
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.DenoiseError)
    }
    said = {name.strip("`"): (base.strip("`"), code) for name, base, _, code in found}
    assert said.keys() == kinds.keys() - {"DenoiseError"}
    for name, (base, code) in said.items():
        assert base in {parent.__name__ for parent in kinds[name].__bases__}
        if code:
            assert int(code) == exit_code(kinds[name]("…"))
    # Layers are napari's, which no command meets.
    assert [name for name, (_, code) in said.items() if not code] == ["LayerError"]


def test_modules_and_layers_of_the_architecture_page():
    """The table names every folder, and may import no more than import-linter allows."""
    text = (ROOT / "docs" / "develop" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|.*\|(.*)\|$", text, re.MULTILINE)
    package = ROOT / "src" / "napari_gpu_denoise"
    there = {
        path.stem
        for path in package.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    stated = {name: set(re.findall(r"`(\w+)`", below)) for name, below in rows if name in there}
    assert set(stated) == there

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    order = [re.findall(r"napari_gpu_denoise\.(\w+)", layer) for layer in layers]
    floor = {name: number for number, names in enumerate(order) for name in names}
    assert set(floor) == there
    for name, below in stated.items():
        assert all(floor[each] > floor[name] for each in below), name


def test_the_example_of_add_a_filter_is_a_filter(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "develop" / "add_a_filter.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^ +```(c|python)\n(.*?)^ +```$", text, re.MULTILINE | re.DOTALL))
    kernel = tmp_path / "yaroslavsky" / "yaroslavsky.cl"
    kernel.parent.mkdir()
    kernel.write_text(textwrap.dedent(parts["c"]), encoding="utf-8")
    monkeypatch.setattr(source, "kernel_folder", lambda: tmp_path)
    example = types.ModuleType("yaroslavsky")
    monkeypatch.setitem(sys.modules, "yaroslavsky", example)  # dataclasses look there
    exec(textwrap.dedent(parts["python"]), vars(example))

    settings = example.Yaroslavsky()
    image, clean = noisy(2, 90, 70), scene(2, 90, 70)
    result = gd.denoise(image, settings, 20)
    assert psnr(result.image, clean) > psnr(image, clean) + 4
    tiled = gd.denoise(image, settings, 20, memory_limit=1 << 17)
    np.testing.assert_array_equal(tiled.image, result.image)
    sigma = np.full((90, 70), 20.0)
    np.testing.assert_array_equal(gd.denoise(image, settings, sigma).image, result.image)
    sigma[:, :35] = 0
    half = gd.denoise(image, settings, sigma).image
    np.testing.assert_array_equal(half[..., :35], image[..., :35])
    np.testing.assert_array_equal(half[..., 35:], result.image[..., 35:])
    assert result.record.filter == "yaroslavsky"


def strings_of_the_source(folder: str = "src", docstrings: bool = True) -> list[str]:
    """Return all strings of the source, with an ellipsis where a value is inserted.

    The names of the formats are always the same.
    """

    def inserted(value: ast.expr) -> str:
        return FORMAT_NAMES if ast.unparse(value) == "FORMAT_NAMES" else "…"

    found = []
    for path in (ROOT / folder).rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        nodes = list(ast.walk(tree))
        unsaid = {each.value for each in nodes if isinstance(each, ast.Expr)}
        for node in nodes:
            if not docstrings and node in unsaid:
                continue
            if isinstance(node, ast.JoinedStr):
                values = (part.value for part in node.values)
                found.append("".join(v if isinstance(v, str) else inserted(v) for v in values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_messages_are_quoted_as_the_program_words_them():
    page = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text("utf-8")
    cells = (line.split("|")[1] for line in page.splitlines() if "|" in line)
    quotations = [quoted for cell in cells for quoted in re.findall(r'"([^"]+)"', cell)]
    texts = "\n".join(strings_of_the_source())
    assert len(quotations) > 10
    for quoted in quotations:
        if not quoted.startswith("CommandLine Error"):  # of LLVM
            # Values stand as an ellipsis, a word with a digit, or the letter of an axis.
            parts = re.split(r"…|\S*\d\S*|\b[A-Z]\b", quoted)
            longest = max((part.strip(" ,:") for part in parts), key=len)
            assert longest in texts, f"nothing says {longest!r}"


# Menus of napari, a rendering of it, and this plugin and its writer as napari lists them.
_OF_NAPARI = "File, Open Sample, Open Folder …, Preferences, Plugins, Save Selected Layers, Layers"
_OF_NAPARI += ", Filter, Measure, Visualize, mip, GPU Denoise image with record"


def test_the_guide_of_napari_names_what_panels_show():
    """Words in italics are those of menus, buttons, boxes, lists, headings and layers."""
    label_of = pytest.importorskip("napari_gpu_denoise._napari.wording").label_of
    text = _FENCE.sub("", (ROOT / "docs" / "guide" / "napari.md").read_text("utf-8"))
    named = re.findall(r"(?<![*\w])\*([^*]+)\*(?![*\w])", text)
    parts = {part for each in named for part in " ".join(each.split()).split(" > ")}
    assert len(parts) > 60
    package = "src/napari_gpu_denoise"
    shown = strings_of_the_source(f"{package}/_napari", docstrings=False)
    shown += strings_of_the_source(f"{package}/assessment", docstrings=False)
    shown.append((ROOT / package / "_napari" / "napari.yaml").read_text("utf-8"))
    for kind in FILTERS:
        shown += [kind.title, *(label_of(field.name) for field in setting_fields(kind))]
    texts = "\n".join(shown)
    for part in sorted(parts - {*_OF_NAPARI.split(", ")}):
        # Values and names of axes stand as an ellipsis in one of the two.
        pieces = re.split(r"…|\d+|\bslice\b", part)
        longest = max((piece.strip(" .,:") for piece in pieces), key=len)
        assert longest in texts, f"no panel says {part!r}"
