"""Find the programs that a job needs by running it on a few pixels, with kernels that do nothing.

A plan asks for kernels as it comes to them, and waits for each to be built. Known beforehand, they
are built side by side (`opencl/ahead.py`). Everything but the kernels is real; as a new size of an
image needs no other programs, these are those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import ProgramKey, program_key
from napari_gpu_denoise.run.flow.work import Work
from napari_gpu_denoise.run.job import Job, Part
from napari_gpu_denoise.run.tiles import Span

# Lengths of axes that a filter joins: all that a plan does at its borders and between them.
_FEW = {"T": 5, "Z": 9, "Y": 48, "X": 48}


class _Recorder(Arena):
    """Buffers of a rehearsal, and kernels that are only noted."""

    def __init__(self, session: Any):
        super().__init__(session)
        self.programs: dict[ProgramKey, None] = {}

    def buffer(self, name: str, nbytes: int):
        """Return a buffer of zeros: what is in it may be converted on the host."""
        import pyopencl as cl

        held = self._buffers.get(name)
        if held is None or held.size < nbytes:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zeros = np.zeros(max(int(nbytes), 4), np.uint8)
            held = self._buffers[name] = cl.Buffer(self.session.context, flags, hostbuf=zeros)
        return held

    def kernel(self, name: str, constants: Mapping[str, int], standard: str = "CL1.2"):
        """Note a kernel; what is returned enqueues nothing but a marker."""
        import pyopencl as cl

        self.programs[program_key(name, constants, standard)] = None
        return lambda queue, *_: cl.enqueue_marker(queue)


def rehearse(
    job: Job, dtypes: tuple[Any, Any], arrange: Callable[..., Work], flow_of: Callable[..., Any]
) -> list[ProgramKey]:
    """Return the programs of a job for pixels and results of these types, in the order of use.

    `arrange` makes the work of a part, `flow_of` what runs it.
    """
    joint = job.filter.joint + "YX"
    few = [
        min(n, _FEW.get(axis, n)) if axis in joint else 1
        for axis, n in zip(job.names, job.shape, strict=True)
    ]
    pixels, out = (np.zeros(few, dtype) for dtype in dtypes)
    work = arrange(job, Part(tuple(map(Span.whole, few))), pixels, out)
    recorder = _Recorder(work.session)
    try:
        with closing(flow_of(work, recorder)) as flow:
            for _ in flow.run():
                pass
    finally:
        recorder.free()
    return list(recorder.programs)
