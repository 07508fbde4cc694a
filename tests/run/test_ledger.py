"""What was found of an image comes back to the bit from text, and only records of this package."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import Note, OutputError
from napari_gpu_denoise.run.ledger import Ledger, packed, unpacked
from scenes import prepared

ROW = (0.1, 1 / 30, 0.0, 0.0, 0.0)
MODEL = gd.Correlated(3.0000000000000004, ((1.0, *ROW[1:]), *(ROW,) * 4))
VALUES = {
    "numbers": (1, 0.1 + 0.2, True, None, "text", np.inf),
    "mapping": {"a": [1, 2], 3: frozenset({"x", "y"})},
    "model": MODEL,
    "filter": prepared(gd.BM3D(), noise=(MODEL,)),
}


def through(value):
    return unpacked(json.loads(json.dumps(packed(value))))


@pytest.mark.parametrize("name", VALUES)
def test_back_to_the_bit(name):
    again = through(VALUES[name])
    assert again == VALUES[name]
    assert type(again) is type(VALUES[name])


def test_arrays():
    spread = np.broadcast_to(np.linspace(0, 1, 5), (3, 4, 5))
    for array in (spread, np.eye(3, dtype=">u2"), np.float32(0.1), np.zeros((0, 3)), np.array(1.5)):
        again = through(array)
        np.testing.assert_array_equal(again, array)
        assert (again.shape, again.dtype) == (array.shape, array.dtype)
    assert len(json.dumps(packed(spread))) < 200


def test_notes_keep_their_remedy():
    note = Note("it is so", "do that", code="x", least=3)
    again = through(note)
    assert (again, again.fact, again.code, again.values) == (note, "it is so", "x", {"least": 3})


def test_what_is_not_known_is_refused():
    with pytest.raises(TypeError, match="cannot be stored"):
        packed(object())
    for kind in (["os", "system"], ["napari_gpu_denoise.run.ledger", "importlib"]):
        with pytest.raises(ValueError, match="is not"):
            unpacked({"kind": kind, "fields": {}})


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room is not asked for here")
def test_room_is_on_the_disk(monkeypatch):
    room = Ledger().room("components", (3, 500), np.dtype(np.float32))
    assert room.shape == (3, 500) and not room.any()
    room[...] = 1

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match=r"no room for the run: No space left.*TMPDIR"):
        Ledger().room("components", (3, 500), np.dtype(np.float32))
