"""Devices that processes of one machine take in turn."""

from __future__ import annotations

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
def cards(device, machine, monkeypatch, tmp_path):
    """Return three GPUs of one model, in a place for locks of its own."""
    found = [
        replace(device, index=k, kind="discrete GPU", problem="", handle=Card(k)) for k in range(3)
    ]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "locks"))
    machine(*found)
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


def test_each_takes_the_first_that_it_sees(cards, machine, monkeypatch):
    """As processes do whose CUDA_VISIBLE_DEVICES begins with another device each."""
    processes = [Process(monkeypatch) for _ in cards]
    for number, process in enumerate(processes):
        seen = cards[number:] + cards[:number]
        machine(*(replace(card, index=k) for k, card in enumerate(seen)))
        assert process.device().handle is cards[number].handle
    for each in processes:
        each.end()


def test_without_a_place_for_locks(cards, monkeypatch, tmp_path):
    (tmp_path / "locks").write_text("a file is in the place of the folder")
    assert Process(monkeypatch).device() == cards[os.getpid() % 3]


@pytest.mark.skipif(os.name == "nt", reason="links need rights")
def test_locks_that_are_links_make_nothing_elsewhere(cards, monkeypatch, tmp_path):
    process = Process(monkeypatch)
    process.device()
    process.end()
    (lock,) = (tmp_path / "locks").iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    again = Process(monkeypatch)
    assert again.device() == cards[os.getpid() % 3] and not again._claims
    assert not lock.exists()
