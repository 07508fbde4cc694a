"""What a run may take of the memory of the machine, and how large its parts may then be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from napari_gpu_denoise.errors import DeviceMemoryError, HostMemoryError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.settings import number_of_bytes

# Taken by Python, libraries, drivers and compilers before the first pixel is read: 220 to 330 MB.
BASE = 340 << 20
# Parts that a device has in memory: one is filtered, the next one read, and the results of this one
# and the last one written.
_IN_MEMORY = 2
# As many bytes as a part holds at most beside what was asked for: wide parts, margins, and chunks
# that are being packed or unpacked.
_SPARE = 6
# Buffers of a CPU may take as much where the user gave no limit: less may be refused.
_LEAST_BUFFERS = 1 << 30


@dataclass(frozen=True)
class HostMemory:
    """A limit to the memory of this machine that a run may take, with the program itself.

    Attributes
    ----------
    limit : int
        In bytes.
    given : bool
        Whether the user gave it. Else it decides how images are cut, and refuses nothing.
    """

    limit: int
    given: bool = True

    @classmethod
    def of(cls, limit: int | str | None) -> HostMemory | None:
        """Return the limit that the user gave, if any."""
        return None if limit is None else cls(number_of_bytes(limit))

    @classmethod
    def quarter_of(cls, free: int) -> HostMemory:
        """Return what is chosen for the user, of the memory that is free."""
        return cls(free // 4, given=False)

    def for_parts(self, devices: Sequence[Device]) -> int:
        """Return the bytes that all parts in memory may hold, on any device."""
        rest = max(self.limit - BASE, 0)
        return rest // 2 if any(each.shares_cores for each in devices) else 3 * rest // 4

    def for_buffers(self, devices: Sequence[Device], memory_limit: int | None) -> int | None:
        """Return the limit to the memory of devices, which for a CPU is that of the machine."""
        if not any(each.shares_cores for each in devices):
            return memory_limit
        share = max((self.limit - BASE) // 2, 1 if self.given else _LEAST_BUFFERS)
        return share if memory_limit is None else min(memory_limit, share)

    def part_bytes(self, devices: Sequence[Device]) -> int:
        """Return the bytes of pixels and result that a part should hold."""
        return max(self.for_parts(devices) // (_IN_MEMORY * _SPARE * len(devices)), 1)

    def fits(self, part_bytes: int, devices: Sequence[Device]) -> bool:
        """Return whether parts of so many bytes of pixels and result take no more."""
        return _IN_MEMORY * len(devices) * part_bytes <= self.for_parts(devices)

    def check_part(self, part_bytes: int, devices: Sequence[Device]) -> None:
        """Refuse parts of so many bytes of pixels and result if they would take too much."""
        if self.given and not self.fits(part_bytes, devices):
            needed = _IN_MEMORY * len(devices) * part_bytes
            share = 2 if any(each.shares_cores for each in devices) else 4 / 3
            raise self.too_small(BASE + int(share * needed))

    def check_whole(self, needed: int) -> None:
        """Refuse an image that has to be in memory, with its result, if it takes too much."""
        if self.given and needed + BASE > self.limit:
            raise self.too_small(needed + BASE)

    @contextlib.contextmanager
    def of_buffers(self, memory_limit: int | None) -> Iterator[None]:
        """Say of buffers that this limit makes too small what it would have to be.

        `memory_limit` is that of the user.
        """
        try:
            yield
        except DeviceMemoryError as error:
            if not self.given or memory_limit is not None or error.code != "memory-limit":
                raise
            raise self.too_small(BASE + 2 * error.values["needed"]) from error

    def too_small(self, needed: int) -> HostMemoryError:
        """Return an error that says what would do."""
        megabytes = -(-needed // 1_000_000)
        return HostMemoryError(
            f"A limit of {self.limit} bytes of main memory is too small for this run",
            f"allow at least memory_limit_host='{megabytes}M'",
            code="memory-limit-host",
            needed=f"{megabytes}M",
        )
