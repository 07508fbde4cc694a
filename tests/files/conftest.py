"""Fixtures for files: how often one is streamed, and a server."""

from __future__ import annotations

import pytest

from napari_gpu_denoise.run import by_parts

pytest.register_assert_rewrite("files.contract")


@pytest.fixture
def streamed(monkeypatch, limits):
    """Take every stack for a large one, and tell how often one was streamed."""
    limits(streamed_bytes=0)
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
