"""Hatch hook: addresses and description of a release, where GPU_DENOISE_URL says where it lives.

The addresses of the project are known to the release workflow only, which sets it to that of the
repository. Package index and napari hub show the README: its links then lead to the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: What follows ``](`` of a link or an image to a file of the repository, and its exclamation mark.
RELATIVE = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#)([^)]+)\)")


def absolute(text: str, url: str) -> str:
    """Return Markdown whose links to files of the repository lead to its web pages."""
    return RELATIVE.sub(
        lambda match: f"{match[1]}{match[2]}{url}/{'raw' if match[1] else 'blob'}/main/{match[3]})",
        text,
    )


class ReleaseMetadata(MetadataHookInterface):
    """Adds the description, and the addresses of the project if they are known."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if url := os.environ.get("GPU_DENOISE_URL", "").rstrip("/"):
            text = absolute(text, url)
            metadata["urls"] = {
                "Homepage": url,
                "Source": url,
                "Documentation": f"{url}/blob/main/docs/README.md",
                "Issues": f"{url}/issues",
                "Changelog": f"{url}/blob/main/docs/changes.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
