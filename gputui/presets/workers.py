"""The workers that a run uses, and what each of them has; or why it can use none.

`describe` runs on each worker as a task, so that a worker that cannot take tasks is found out
before the run begins; no CUDA context is made for a run on the CPU.

Called by `gputui.runs.execution` before anything of a preset starts. A preset for GPUs runs on
workers that carry the Dask resource `GPU`; where none does (a cluster that others set up), on all
of them.
"""

import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from gputui.errors import ClusterError, UsageError
from gputui.presets.definition import Library, Preset
from gputui.presets.job import Job, RunWorker
from gputui.process import cgroups

SHARES = {
    "numpy": 0.5,  # of a worker's memory limit, for its tasks; Dask spills from 0.6 on
    "cupy": 0.85,  # of the free device memory; the rest is for fragmentation
}
MOST_NAMES = 4  # of workers that a message lists
LIBRARIES = ("dask", "distributed", "numpy", "cupy", "cudf", "cuml", "torch", "pandas")
CUPY = Library(
    "cupy", "pip install 'gputui[cuda13]'   (or gputui[cuda12] for an older driver)", ("cupy",)
)
# Module → the package that a host needs, where it has another name; gputui itself travels.
PACKAGES = {
    "cupy": "cupy-cuda13x[ctk]",
    "cudf": "cudf-cu13",
    "dask_cudf": "dask-cudf-cu13",
}


def known_workers(client: Any) -> Mapping[str, Any]:
    """Return the workers of a Dask client's scheduler as that describes them, by address.

    `client.scheduler_info` returns the last answer, and every two seconds the client asks for
    its own use without workers: now and then that answer is the last. Source: distributed 2026.8,
    `client.py`.
    """
    found: Mapping[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found


def has_gpu(known: Mapping[str, Any]) -> bool:
    """Whether the scheduler knows a worker as one with a GPU."""
    return bool(known.get("resources", {}).get("GPU"))


def choose(
    known: Mapping[str, Any], backend: str, names: Collection[str] | None
) -> tuple[str, dict[str, Any]]:
    """Return cupy or numpy, and the workers to use: those named, and for CuPy those with a GPU.

    `known` are the scheduler's workers by address; `backend` is auto, cupy or numpy.
    """
    if not known:
        raise ClusterError("the cluster has no worker")
    if backend not in ("auto", "cupy", "numpy"):
        raise UsageError(f"backend '{backend}': must be one of auto, cupy, numpy")
    any_gpu = any(map(has_gpu, known.values()))
    if backend == "auto":
        backend = "cupy" if any_gpu else "numpy"
    by_name = {str(each["name"]): (address, each) for address, each in known.items()}
    if absent := sorted(set(names or ()) - by_name.keys()):
        raise ClusterError(f"no worker is named {', '.join(absent)}")
    fitting = [
        name
        for name, (_, each) in by_name.items()
        if (names is None or name in names) and (backend == "numpy" or not any_gpu or has_gpu(each))
    ]
    if not fitting:
        raise ClusterError("none of the workers has a GPU; choose the CPU with the backend numpy")
    return backend, dict(by_name[name] for name in sorted(fitting, key=_natural))


def _host(known: Mapping[str, Any]) -> str:
    """Return the host in the name of a worker; where that has none, its address."""
    return str(known["name"]).rpartition(":")[0] or known["host"]


def _natural(name: str) -> list[Any]:
    """Return a key that sorts gpu2 before gpu10."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", name))]


def ask(preset: Preset, job: Job, chosen: Mapping[str, Any]) -> tuple[RunWorker, ...]:
    """Have every worker describe itself, a busy one in its turn; leave out one that is lost.

    Raises:
        ClusterError: all of them were lost.
    """
    from gputui.presets.restrictions import LiftsRestrictions, while_worker_lives

    job.client.register_plugin(LiftsRestrictions())
    modules = tuple(each.module for each in _libraries(preset) if job.backend in each.backends)
    there = Counter(map(_host, chosen.values()))
    with while_worker_lives():
        futures = [
            job.client.submit(
                describe,
                job.backend,
                modules,
                there[_host(each)],
                workers=[address],
                resources={"GPU": 1} if has_gpu(each) else None,
                pure=False,
            )
            for address, each in chosen.items()
        ]
    answers = zip(chosen, job.results(futures, "asking workers"), strict=True)
    found = [each for address, each in answers if each.address == address]
    if not found:
        raise ClusterError("all workers of this run were lost before it began")
    uuids = [each.uuid for each in found]
    return tuple(
        replace(each, memory_bytes=each.memory_bytes // uuids.count(each.uuid))
        if each.uuid
        else each
        for each in found
    )


def _libraries(preset: Preset) -> tuple[Library, ...]:
    return (*preset.requires, CUPY) if preset.uses_cupy else preset.requires


def refuse_unfit(preset: Preset, workers: Sequence[RunWorker]) -> None:
    """Raise ClusterError that names the workers that lack a GPU or a library, and what to do."""
    if without := [each for each in workers if each.no_gpu]:
        raise ClusterError(
            f"{preset.name} with the backend cupy needs a GPU, but {listed(without)} cannot use "
            f"one: {'; '.join(sorted({each.no_gpu for each in without}))}\n"
            "  choose the CPU with the backend numpy, or hosts that have GPUs"
        )
    lines = []
    for library in _libraries(preset):
        lacking = [each for each in workers if library.module in each.missing]
        hint, package = library.install, PACKAGES.get(library.module, library.module)
        if any(":" in each.name and not each.name.startswith("localhost:") for each in lacking):
            hint = f"there: pip install '{package}' for the Python of its workers"
        if lacking:
            needs = f"{preset.name} needs {library.module}, which is not installed for"
            lines.append(f"{needs} {listed(lacking)}\n  {hint}")
    if lines:
        raise ClusterError("\n".join(lines))


def listed(workers: Sequence[RunWorker]) -> str:
    """Return the names of the first few of many workers."""
    names = [each.name for each in workers]
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest:,} more" if rest > 0 else "")


def device_label(label: str) -> str | None:
    """Return the device of a worker's name.

    >>> device_label("gpu3"), device_label("gpu3.1"), device_label("mig0.2")
    ('3', '3', '0.2')
    """
    if label.startswith("mig"):
        return label.removeprefix("mig")
    return label.removeprefix("gpu").partition(".")[0] if label.startswith("gpu") else None


def versions(workers: Sequence[RunWorker]) -> dict[str, str]:
    """Return the version of each library on the workers; "a, b" where they differ."""
    found: dict[str, set[str]] = {"python": {sys.version.split()[0]}}
    for library in LIBRARIES:
        if releases := {each.versions[library] for each in workers if library in each.versions}:
            found[library] = releases
    return {library: ", ".join(sorted(releases)) for library, releases in found.items()}


def describe(backend: str, modules: tuple[str, ...], count: int) -> RunWorker:
    """Describe this worker, one of `count` on its host; its device only where `backend` is cupy."""
    from distributed import get_worker

    this = get_worker()
    name, nthreads = str(this.name), this.state.nthreads
    host, _, label = name.rpartition(":")
    use = cgroups.memory()
    free_bytes = (use.total_bytes - use.used_bytes) // count
    uuid, memory_bytes, no_gpu = None, this.memory_manager.memory_limit or free_bytes, ""
    if backend == "cupy":
        try:
            uuid, memory_bytes = _device()
        except OSError as error:
            no_gpu = error.strerror or str(error)
    return RunWorker(
        name=name,
        address=this.address,
        host=host or this.ip,
        device=device_label(label),
        uuid=uuid,
        nthreads=nthreads,
        memory_bytes=room_of_task(backend, memory_bytes, nthreads),
        no_gpu=no_gpu,
        missing=tuple(each for each in modules if importlib.util.find_spec(each) is None),
        versions=_versions(),
    )


def room_of_task(backend: str, memory_bytes: float, nthreads: int) -> int:
    """Return the bytes that a task may take of a memory limit, or of free device memory.

    >>> room_of_task("numpy", 4000, nthreads=2), room_of_task("cupy", 4000, nthreads=1)
    (1000, 3400)
    """
    return int(memory_bytes * SHARES[backend]) // nthreads


def pinned_uuid() -> str | None:
    """Return the UUID of the device that this worker was pinned to; None where by index."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    return first if first.startswith(("GPU-", "MIG-")) else None


def _device() -> tuple[str | None, int]:
    from gputui.worker.cuda import driver  # imports NumPy, which a list of presets need not

    room = driver.free_bytes() + free_in_rmm()
    if importlib.util.find_spec("cupy"):
        import cupy

        pool = cupy.get_default_memory_pool()
        room += pool.free_bytes()
        if pool.get_limit():
            room = min(room, pool.get_limit() - pool.used_bytes())
    return driver.uuid(), room


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
def _versions() -> dict[str, str]:
    """Return the installed versions from metadata, without imports."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in LIBRARIES:
        for distribution in (f"{name}-cu13", f"{name}-cuda12x", f"{name}-cuda13x", name):
            with suppress(PackageNotFoundError):
                found[name] = version(distribution)
    return found
