"""Time the first call of a fresh process: a script for `time_process`.

Its argument says in JSON what to do; it prints the seconds of each part as JSON. Nothing of the
package is imported before it is timed.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any


def run_task(task: dict[str, Any]) -> dict[str, float]:
    """Return the parts of a first call in this process, in seconds."""
    times = [time.perf_counter()]

    def mark() -> None:
        times.append(time.perf_counter())

    import numpy as np

    from napari_gpu_denoise.filters import filters_for
    from napari_gpu_denoise.opencl.device import find
    from napari_gpu_denoise.opencl.program import session
    from napari_gpu_denoise.run.denoise import denoise

    (kind,) = filters_for(task["filter"])  # without the others, as a user imports it
    settings = kind.of(**task["settings"])
    mark()
    device = find(*task["device"])
    mark()
    session(device)
    mark()
    rng, sigma = np.random.default_rng(0), task["sigma"]
    image = rng.normal(100, sigma, task["shape"]).astype(np.float32)
    for _ in range(2):
        start = time.perf_counter()
        denoise(image, settings, sigma, axes=task["axes"], device=device)
        times.append(times[-1] + time.perf_counter() - start)
    imports, discovery, context, first, again = (
        after - before for before, after in itertools.pairwise(times)
    )
    # Compiling: or what is read from the cache, and other work that is done once.
    return {
        "imports": imports,
        "discovery": discovery,  # of devices
        "context": context,
        "compiling": max(first - again, 0.0),
        "call": again,  # what any later call takes
    }


if __name__ == "__main__":
    print(json.dumps(run_task(json.loads(sys.argv[1]))))
