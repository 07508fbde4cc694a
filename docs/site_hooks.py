"""MkDocs hooks: API pages made from the public names, and the pages that stand outside docs/.

The API pages follow `napari_gpu_denoise.__all__`, so that a name that is added or a module that
moves needs no change here. Nothing is written to disk.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from types import ModuleType

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import napari_gpu_denoise as gd  # noqa: E402
from napari_gpu_denoise.protocol.settings import setting_fields  # noqa: E402

# Files of the repository that are pages of the site as well.
INCLUDED = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "LICENSE.txt",
    "CITATION.cff": "CITATION.txt",
    "kernels/README.md": "kernels.md",
    "sample_data/README.md": "sample_data.md",
}
# The page of a public name, by the first folder or module that it lives in.
PAGES = {
    "filters": "Filters",
    "measurements": "Filters",
    "noise": "Noise",
    "opencl": "Devices",
    "files": "Files",
    "errors": "Errors",
}
OTHERS = "Running a filter"
ORDER = ("Filters", OTHERS, "Noise", "Devices", "Files", "Errors")

# A fenced block, which stays as it is, or a link.
_FENCE_OR_LINK = re.compile(r"^```.*?^```$|(!?\[[^\]]*\]\()([^)\s]+)\)", re.MULTILINE | re.DOTALL)
_DOI = re.compile(r":doi:<code>([^<]+)</code>")


def on_config(config):
    """Add the API pages to the navigation."""
    pages = [{title: _api_path(title)} for title in _names_by_page()]
    config.nav.insert(-3, {"API": pages})
    return config


def on_files(files, config):
    """Add the generated pages."""
    for source, target in INCLUDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    for title, names in _names_by_page().items():
        files.append(File.generated(config, _api_path(title), content=_api_page(title, names)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Point links between files of the repository to the pages they are in the site."""
    here = {target: source for source, target in INCLUDED.items()}
    source = here.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def replaced(match: re.Match) -> str:
        path, hash_sign, anchor = (match[2] or "").partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        target = INCLUDED.get(target, target.removeprefix("docs/"))
        link = posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{link}{hash_sign}{anchor})"

    return _deeper_lists(_FENCE_OR_LINK.sub(replaced, markdown))


def _deeper_lists(markdown: str) -> str:
    """Indent the contents of numbered items by four columns; forges accept three, MkDocs not."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        if re.match(r"\d+\. ", line):
            inside = True
        elif inside and line.startswith("   "):
            line = f" {line}"
        elif line:
            inside = False
        lines.append(line)
    return "\n".join(lines)


def on_page_content(html, page, config, files):
    """Make links of the DOIs in docstrings."""
    return _DOI.sub(r'<a href="https://doi.org/\1">doi:\1</a>', html)


def _names_by_page() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {title: [] for title in ORDER}
    for name in gd.__all__:
        if name != "__version__":
            found[PAGES.get(_folder(getattr(gd, name)), OTHERS)].append(name)
    return {title: names for title, names in found.items() if names}


def _folder(value: object) -> str:
    """Return the first folder or module of the package that a public name lives in."""
    if isinstance(value, tuple):
        value = value[0]
    module = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return module.split(".")[1]


def _api_path(title: str) -> str:
    return f"api/{title.lower().replace(' ', '_')}.md"


def _api_page(title: str, names: list[str]) -> str:
    parts = [f"# {title}", "All names are attributes of `napari_gpu_denoise`."]
    for name in names:
        value = getattr(gd, name)
        if value in gd.FILTERS:
            # The fields are in the tables; what remains are hooks for plans and runs.
            parts += [_entry(name, "show_signature: false", "members: false"), *_settings(value)]
        elif isinstance(value, ModuleType) or callable(value):
            parts.append(_entry(name))
        else:
            kinds = ", ".join(f"`{kind.__name__}`" for kind in value)
            parts.append(f"## {name}\n\nThe settings classes, one for each filter: {kinds}.")
    return "\n\n".join(parts) + "\n"


def _entry(name: str, *options: str) -> str:
    """Return the mkdocstrings block of a public name, by the module that defines it."""
    value = getattr(gd, name)
    is_module = isinstance(value, ModuleType)
    path = value.__name__ if is_module else f"{value.__module__}.{value.__qualname__}"
    lines = [f"::: {path}"]
    if options:
        lines += ["    options:", *(f"      {option}" for option in options)]
    return "\n".join(lines)


def _settings(kind: type) -> list[str]:
    """Return the tables of settings and profiles of a filter."""
    rows = ["| setting | default | allowed | unit | meaning |", "| --- | --- | --- | --- | --- |"]
    for field in setting_fields(kind):
        details = field.metadata
        if details["choices"]:
            allowed = ", ".join(f"`{choice!r}`" for choice in details["choices"])
        elif details["bounds"]:
            allowed = "{:g} to {:g}".format(*details["bounds"])
        else:
            allowed = "`True`, `False`"
        cells = f"`{field.name}`", f"`{field.default!r}`", allowed, details["unit"], details["help"]
        rows.append("| " + " | ".join(cells) + " |")
    profiles = ["| profile | changes |", "| --- | --- |"]
    for profile, changes in kind.presets.items():
        said = ", ".join(f"`{name}={value!r}`" for name, value in changes.items())
        profiles.append(f"| `{profile}` | {said or 'none: the defaults'} |")
    return ["\n".join(rows), "\n".join(profiles)]
