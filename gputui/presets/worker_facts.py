"""A worker's facts before a run: its device, its memory, and its packages.

`describe` runs on the worker as a task, so that a worker that cannot take tasks is found out
before the run begins; no CUDA context is made for a run on the CPU.
"""

import ctypes
import importlib.util
import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

DEVICE_SHARE = 0.85
"""Share of the free device memory that a run may plan with; the rest is for fragmentation."""

LIBRARIES = ("dask", "distributed", "numpy", "cupy", "cudf", "cuml", "torch", "pandas", "polars")


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker, as it sees itself."""

    address: str
    uuid: str | None
    device_name: str | None
    device_bytes: int | None
    """What its tasks may take there; None without a GPU."""
    no_gpu: str
    """Why no GPU is there where one is needed; "" else."""
    missing: tuple[str, ...]
    """Modules that were asked for and are not installed."""
    versions: tuple[tuple[str, str], ...]


def describe(backend: str, modules: tuple[str, ...]) -> WorkerFacts:
    """Return this worker's facts; the device only where `backend` is cupy."""
    from distributed import get_worker

    missing = tuple(each for each in modules if importlib.util.find_spec(each) is None)
    no_gpu = _why_no_gpu() if backend == "cupy" else ""
    on_device = backend == "cupy" and not no_gpu
    uuid, name, size = _device() if on_device else (None, None, None)
    return WorkerFacts(get_worker().address, uuid, name, size, no_gpu, missing, _versions())


def _why_no_gpu() -> str:
    """Return why the CUDA driver has no GPU for this process; "" where it has one.

    Source: CUDA Driver API, cuInit and cuDeviceGetCount; no context is made.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is there (libcuda.so.1 was not found)"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value:
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible!r}"
    return f"the CUDA driver shows no GPU (error {code}{hidden})"


def pinned_uuid() -> str | None:
    """Return the UUID of the device that this worker was pinned to; None where by index."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    return first if first.startswith(("GPU-", "MIG-")) else None


def _device() -> tuple[str, str, int]:
    from gputui.worker.cuda import driver  # imports NumPy, which a list of presets need not

    room = driver.free_bytes() + free_in_rmm()
    if importlib.util.find_spec("cupy"):
        import cupy

        pool = cupy.get_default_memory_pool()
        room += pool.free_bytes()
        if pool.get_limit():
            room = min(room, pool.get_limit() - pool.used_bytes())
    return driver.uuid(), driver.name(), int(room * DEVICE_SHARE)


def free_in_rmm() -> int:
    """Return the unused bytes in RMM's pool, where this worker has one."""
    if "rmm" not in sys.modules:
        return 0
    from rmm import mr

    counted = mr.get_current_device_resource()
    if not isinstance(counted, mr.StatisticsResourceAdaptor):
        return 0
    pool, counts = counted.get_upstream().get_upstream(), counted.allocation_counts
    by_rmm = isinstance(pool, mr.PoolMemoryResource)
    kept = pool.pool_size() if by_rmm else counts.peak_bytes  # the driver's pool never shrinks
    return int(kept) - int(counts.current_bytes)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Return the installed versions from metadata, without imports."""
    found = []
    for name in LIBRARIES:
        for distribution in (name, f"{name}-cuda13x", f"{name}-cuda12x", f"{name}-cu13"):
            try:
                found.append((name, version(distribution)))
            except PackageNotFoundError:
                continue
            break
    return tuple(found)
