"""The workers that a run uses, and what each of them has; or why it can use none.

`describe` runs on each worker as a task, so that a worker that cannot take tasks is found out
before the run begins; no CUDA context is made for a run on the CPU.

Called by `gputui.runs.execution` before anything of a preset starts. A preset for GPUs runs on
workers that carry the Dask resource `GPU`; where none does (a cluster that others set up), on all
of them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gputui.errors import ClusterError, UsageError
from gputui.presets.definition import Preset
from gputui.presets.job import Job, RunWorker

if TYPE_CHECKING:
    import distributed


HOST_SHARE = 0.5
"""Of a CPU worker's memory limit: what its tasks may plan with; Dask spills from 0.6 on."""

MOST_NAMES = 4
"""Of workers that a message lists."""

_PIECES = re.compile(r"(\d+)")

PACKAGES = {
    "sklearn": "scikit-learn",
    "cupy": "cupy-cuda13x[ctk]",
    "cudf": "cudf-cu13",
    "dask_cudf": "dask-cudf-cu13",
    "cudf_polars": "cudf-polars-cu13",
    "cuml": "cuml-cu13",
}
"""Module → the package that a host needs, where it has another name; gputui itself travels."""

CUPY_INSTALL = "pip install 'gputui[cuda13]'   (or gputui[cuda12] for an older driver)"


def known_workers(client: distributed.Client) -> Mapping[str, Any]:
    """Return the scheduler's workers as it describes them, by address.

    `client.scheduler_info` returns the last answer, and every two seconds the client asks for
    its own use without workers: now and then that answer is the last. Source: distributed 2026.8,
    `client.py`.
    """
    found: Mapping[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found


def resolve_backend(backend: str, known: Mapping[str, Any]) -> str:
    """Return cupy or numpy for auto, cupy or numpy; `known` are the scheduler's workers.

    Raises:
        ClusterError: there is no worker.
    """
    if not known:
        raise ClusterError("the cluster has no worker")
    if backend not in ("auto", "cupy", "numpy"):
        raise UsageError(f"backend '{backend}': must be one of auto, cupy, numpy")
    if backend == "auto":
        return "cupy" if have_gpu(known) else "numpy"
    return backend


def have_gpu(known: Mapping[str, Any]) -> bool:
    """Whether any of these workers carries the resource `GPU`."""
    return any(each.get("resources", {}).get("GPU") for each in known.values())


def choose(known: Mapping[str, Any], names: Collection[str] | None, backend: str) -> dict[str, Any]:
    """Return the workers to use by address: those named, and for CuPy those with a GPU."""
    present = {str(each["name"]) for each in known.values()}
    absent = sorted(set(names or ()) - present)
    if absent:
        raise ClusterError(f"no worker is named {', '.join(absent)}")
    fitting = {
        address: each
        for address, each in known.items()
        if (names is None or str(each["name"]) in names)
        and (backend == "numpy" or not have_gpu(known) or each["resources"].get("GPU"))
    }
    if not fitting:
        raise ClusterError("none of the workers has a GPU; choose the CPU with --backend numpy")
    return dict(sorted(fitting.items(), key=lambda item: _natural(str(item[1]["name"]))))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts gpu2 before gpu10."""
    return [(int(piece or 0) if piece.isdigit() else -1, piece) for piece in _PIECES.split(name)]


def ask(preset: Preset, job: Job, chosen: Mapping[str, Any]) -> dict[str, WorkerFacts]:
    """Have every worker describe itself; one that is lost meanwhile is left out.

    Raises:
        ClusterError: all of them were lost.
    """
    modules = tuple(each.module for each in preset.requires if job.backend in each.backends)
    if job.backend == "cupy" and preset.uses_cupy:
        modules += ("cupy",)
    futures = [
        job.client.submit(
            describe,
            job.backend,
            modules,
            workers=[address],
            allow_other_workers=True,  # else the task of a lost one would wait for ever
            resources={"GPU": 1} if each.get("resources", {}).get("GPU") else None,
            pure=False,
        )
        for address, each in chosen.items()
    ]
    answers = zip(chosen, job.results(futures, "asking workers"), strict=True)
    facts = {address: each for address, each in answers if each.address == address}
    if not facts:
        raise ClusterError("all workers of this run were lost before it began")
    return facts


def refuse_without_gpu(
    preset: Preset, chosen: Mapping[str, Any], facts: Mapping[str, WorkerFacts]
) -> None:
    """Raise ClusterError that says where no GPU is, and why, where the run needs one."""
    lacking = {address: each.no_gpu for address, each in facts.items() if each.no_gpu}
    if lacking:
        names = listed([str(chosen[address]["name"]) for address in lacking])
        why = "; ".join(sorted(set(lacking.values())))
        raise ClusterError(
            f"{preset.name} with --backend cupy needs a GPU, but {names} cannot use one: {why}\n"
            "  choose the CPU with --backend numpy, or hosts that have GPUs"
        )


def refuse_missing(
    preset: Preset, chosen: Mapping[str, Any], facts: Mapping[str, WorkerFacts]
) -> None:
    """Raise ClusterError that names each library, where it is missing, and how to install it."""
    install = {each.module: each.install for each in preset.requires} | {"cupy": CUPY_INSTALL}

    def hint(module: str, names: Sequence[str]) -> str:
        if all(name.startswith("localhost:") or ":" not in name for name in names):
            return install[module]
        package = PACKAGES.get(module, module)
        return f"there: pip install '{package}' for the Python of its workers"

    lacking: dict[str, list[str]] = {}
    for address, each in facts.items():
        for module in each.missing:
            lacking.setdefault(module, []).append(str(chosen[address]["name"]))
    if lacking:
        raise ClusterError(
            "\n".join(
                f"{preset.name} needs {module}, which is not installed for {listed(names)}\n"
                f"  {hint(module, names)}"
                for module, names in lacking.items()
            )
        )


def listed(names: Sequence[str]) -> str:
    """Return the first few of many names.

    >>> listed(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d and 2 more'
    """
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def described(chosen: Mapping[str, Any], facts: Mapping[str, WorkerFacts]) -> tuple[RunWorker, ...]:
    """Join the scheduler's information with the workers' reports."""
    uuids = [each.uuid for each in facts.values()]
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    workers = []
    for address, known in chosen.items():
        found, name = facts[address], str(known["name"])
        host, _, label = name.rpartition(":")
        limit_bytes = known["memory_limit"] or free_bytes // len(chosen)
        room_bytes = found.device_bytes
        if room_bytes is None:
            room_bytes = int(limit_bytes * HOST_SHARE)
        sharers = uuids.count(found.uuid) if found.uuid else 1
        worker = RunWorker(
            name=name,
            address=address,
            host=host or known["host"],
            device=device_label(label),
            uuid=found.uuid,
            device_name=found.device_name,
            nthreads=known["nthreads"],
            memory_bytes=room_bytes // sharers // known["nthreads"],
        )
        workers.append(worker)
    return tuple(workers)


def device_label(label: str) -> str | None:
    """Return the device of a worker's name.

    >>> device_label("gpu3"), device_label("gpu3.1"), device_label("mig0.2")
    ('3', '3', '0.2')
    """
    if label.startswith("mig"):
        return label.removeprefix("mig")
    return label.removeprefix("gpu").partition(".")[0] if label.startswith("gpu") else None


def versions(facts: Mapping[str, WorkerFacts]) -> dict[str, str]:
    """Return the version of each library on the workers; "a, b" where they differ."""
    found: dict[str, set[str]] = {"python": {sys.version.split()[0]}}
    for each in facts.values():
        for library, release in each.versions:
            found.setdefault(library, set()).add(release)
    return {library: ", ".join(sorted(versions)) for library, versions in found.items()}


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
