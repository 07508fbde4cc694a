"""Devices that processes of one machine take in turn."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import replace

import pytest

from napari_gpu_denoise.opencl import device as devices


class Card:
    """A handle of a device that knows its place on the bus."""

    def __init__(self, place):
        self.pci_domain_id_nv, self.pci_bus_id_nv, self.pci_slot_id_nv = 0, place, 0


@pytest.fixture
def cards(device, monkeypatch, tmp_path):
    """Return three GPUs of one model, in a place for locks of its own."""
    found = [
        replace(device, index=k, kind="discrete GPU", problem="", handle=Card(k)) for k in range(3)
    ]
    monkeypatch.setattr(devices, "_devices", lambda: tuple(found))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return found


class Process:
    """What a process remembers, for tests in one process."""

    def __init__(self, monkeypatch):
        self._claims, self._patch = {}, monkeypatch

    def device(self, wanted=None):
        self._patch.setattr(devices, "_claims", self._claims)
        return devices.own_device(wanted)

    def end(self):
        for lock in self._claims.values():
            lock.release()


def test_devices_are_given_out_in_turn(cards, monkeypatch):
    processes = [Process(monkeypatch) for _ in range(5)]
    assert [each.device() for each in processes] == [*cards, *cards[:2]]
    assert [each.device() for each in processes] == [*cards, *cards[:2]]
    processes[1].end()
    assert Process(monkeypatch).device() == cards[1]
    for each in (*processes[:1], *processes[2:]):
        each.end()


def test_of_those_named_one_is_taken(cards, monkeypatch):
    first, second, third = (Process(monkeypatch) for _ in range(3))
    assert first.device("1,2") == cards[1]
    assert second.device([1, 2]) == cards[2]
    assert third.device("1") == cards[1]
    # Whoever has one of those named takes that.
    assert first.device("0,1") == cards[1]
    monkeypatch.setenv("GPU_DENOISE_DEVICE", "2")
    assert Process(monkeypatch).device() == cards[2]
    first.end()
    second.end()


def test_each_takes_the_first_that_it_sees(cards, monkeypatch):
    """As processes do whose CUDA_VISIBLE_DEVICES begins with another device each."""
    processes = [Process(monkeypatch) for _ in cards]
    for number, process in enumerate(processes):
        seen = cards[number:] + cards[:number]
        seen = tuple(replace(card, index=k) for k, card in enumerate(seen))
        monkeypatch.setattr(devices, "_devices", lambda seen=seen: seen)
        assert process.device().handle is cards[number].handle
    for each in processes:
        each.end()


def test_without_a_place_for_locks(cards, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    assert Process(monkeypatch).device() in cards


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners and modes")
@pytest.mark.parametrize("trap", ["mode", "owner", "folder is a link", "lock is a link"])
def test_locks_that_others_can_hold_are_not_used(cards, monkeypatch, tmp_path, trap):
    """Whoever prepares the folder of locks neither holds them nor has files made elsewhere."""
    folder, elsewhere = tmp_path / f"gpu-denoise-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    if trap == "folder is a link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir(0o700)
    if trap == "mode":
        folder.chmod(0o777)
    if trap == "owner":
        if os.getuid() != 0:
            pytest.skip("needs root")
        os.chown(folder, 4711, 4711)
    if trap == "lock is a link":
        names = {devices._physical(card): card for card in cards}
        for name in names:
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            (folder / f"device-{digest}-0.lock").symlink_to(elsewhere / "made")
    before = sorted(folder.iterdir())
    process = Process(monkeypatch)
    assert process.device() == cards[os.getpid() % 3] and not process._claims
    assert not list(elsewhere.iterdir()) and sorted(folder.iterdir()) == before
