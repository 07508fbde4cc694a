"""Connect to the scheduler of a cluster, or start workers on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from napari_gpu_denoise.errors import ClusterError, NoDeviceError
from napari_gpu_denoise.opencl.several import choose_devices

_SECONDS = 30  # to wait for a scheduler, and for its first worker
# Threads of PoCL: its versions have two names for their number.
THREADS_OF_POCL = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


@contextlib.contextmanager
def connected(scheduler: str | None = None, workers: int = 0, device: Any = None) -> Iterator[Any]:
    """Yield a client of dask: of the scheduler at an address, or of new workers on this machine.

    The workers end with the block. `device` is what they are to run on: of a CPU each has its share
    of the cores.
    """
    if workers < 0:
        raise ClusterError(f"There cannot be {workers} workers: start one or more.")
    try:
        import distributed
    except ImportError as error:
        raise ClusterError(
            "Workers need dask.distributed, which is not installed: pip install "
            "'napari-gpu-denoise[cluster]'."
        ) from error
    with contextlib.ExitStack() as held:
        if scheduler is not None:
            client = _client_of(distributed, scheduler)
        else:
            held.callback(_quietened())
            options = {"n_workers": workers, "preload": [__name__], **_shared_out(workers, device)}
            # Whoever can reach the dashboard sees names of files, and more.
            options["dashboard_address"] = "127.0.0.1:8787"
            try:
                cluster = distributed.LocalCluster(**options)
            except (OSError, RuntimeError) as error:
                raise ClusterError(
                    f"{workers} workers could not be started ({error}): start fewer."
                ) from error
            client = distributed.Client(held.enter_context(cluster), set_as_default=False)
        held.enter_context(client)
        yield client


def _client_of(distributed: Any, scheduler: str) -> Any:
    _check_address(distributed, scheduler)
    try:
        client = distributed.Client(scheduler, timeout=_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(
            f"No dask scheduler answers at {scheduler}: give the address that it prints when it "
            "starts, such as tcp://login1:8786."
        ) from error
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError as error:
        client.close(timeout=0)
        raise ClusterError(
            f"The scheduler at {scheduler} has no workers: start some with 'dask worker "
            f"{scheduler}'."
        ) from error
    return client


def _check_address(distributed: Any, scheduler: str) -> None:
    """Refuse at once an address that dask would try to reach until its time is over."""
    from distributed.comm import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    protocol, _ = parse_address(scheduler)
    try:
        get_backend(protocol)
        if protocol in ("tcp", "tls"):
            get_address_host_port(scheduler)
    except ValueError as error:
        raise ClusterError(
            f"{scheduler} is no address of a dask scheduler: give the one that it prints when it "
            "starts, such as tcp://login1:8786."
        ) from error
    secured = distributed.Security().get_connection_args("client")
    if protocol in ("tls", "wss") and secured.get("ssl_context") is None:
        raise ClusterError(
            f"{scheduler} needs certificates, and none are set: name them in the settings of dask, "
            "as distributed.comm.tls.client.cert, .key and ca-file."
        )


def _shared_out(workers: int, device: Any) -> dict[str, Any]:
    """Return the threads of each of some workers, and the variables of their environment."""
    try:
        on_cores = choose_devices(device)[0].shares_cores
    except NoDeviceError:
        on_cores = False  # each worker looks for itself, and says so
    if not on_cores:
        # While the device filters a part, another one is read or written.
        return {"threads_per_worker": 2}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    each = str(max(1, (cores or 1) // workers))
    given = {name: each for name in THREADS_OF_POCL if name not in os.environ}
    return {"threads_per_worker": 1, "env": given}


def _quietened() -> Any:
    """Let dask not tell of each worker that ends; return a function that undoes it."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.nanny")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    return lambda: [one.setLevel(level) for one, level in zip(loggers, before, strict=True)]


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the command, which the terminal sends to all of its processes.

    Called by each worker that `connected` starts, before any work.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It warns of each task that is given up when a run is stopped.
    logging.getLogger("distributed.worker.state_machine").setLevel(logging.ERROR)
    # Where a write fails, zarr leaves the other chunks that it is writing; Python tells of each.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
