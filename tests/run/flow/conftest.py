"""A device with little memory, for the flows of tiles and of frames."""

from __future__ import annotations

import pytest

from napari_gpu_denoise.opencl.memory import Arena, release_memory


@pytest.fixture
def small_device(monkeypatch):
    """Give a limit to the size of a buffer, as a device with little memory has."""

    def limit(nbytes):
        plain = Arena.buffer

        def buffer(self, name, wanted):
            # More than the device can have: it refuses, as when its memory is full.
            return plain(self, name, 1 << 60 if wanted > nbytes else wanted)

        release_memory()
        monkeypatch.setattr(Arena, "buffer", buffer)

    return limit
