"""Fixtures for files: small ones that are taken for large, and how often one is streamed."""

from __future__ import annotations

import pytest

from files.interrupted import divide
from napari_gpu_denoise.files import one_file
from napari_gpu_denoise.run import by_parts

pytest.register_assert_rewrite("files.contract")


@pytest.fixture
def in_parts(monkeypatch):
    """Take every file for a large one, of small parts, of which a moment is worth to be kept."""
    divide(monkeypatch)


@pytest.fixture
def streamed(monkeypatch):
    """Take every stack for a large one, and tell how often one was streamed."""
    monkeypatch.setattr(one_file, "STREAMED_BYTES", 0)
    seen, plain = [], by_parts.FrameStream

    def counted(*given, **named):
        seen.append(given)
        return plain(*given, **named)

    monkeypatch.setattr(by_parts, "FrameStream", counted)
    return seen


@pytest.fixture
def memory():
    """Return a file system in memory, which stands for a server, and leave nothing there."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/lab"):
        system.rm("/lab", recursive=True)
