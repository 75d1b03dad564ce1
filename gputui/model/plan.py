"""Hosts and what they have → the workers that they can run, as `WorkerSpec`s.

Pure, as is what decides on top of it (`fleet/desired.py`), so that a preview on the screen and
the change itself come from the same functions.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isqrt

from gputui.model.bounds import (
    Bytes,
    Cpus,
    Name,
    Options,
    Share,
    SmallNumber,
    Some,
)
from gputui.model.frozen import frozen
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading


@frozen
class HostCapacity:
    """A host's capacity: the devices that its line asks for and that may be used, CPUs, memory."""

    devices: tuple[DeviceReading, ...]
    cpus: int
    memory_bytes: int


@frozen
class CpuDivision:
    """How GPU workers and CPU workers of one host divide its CPUs."""

    devices: Some[Name]
    """The device of each GPU worker, for which one CPU near it is kept."""
    cpus: Cpus
    """Of those that are left, how many all CPU workers have together."""
    first: Cpus = 0
    """The first of these that this CPU worker has."""


@frozen
class WorkerSpec:
    """One worker to run: where, on which device, and within what limits."""

    name: Name
    host: Name
    device_uuid: Name | None
    nthreads: SmallNumber
    memory_limit_bytes: Bytes
    """0 is no limit."""
    env: Options = ()
    device_share: Share = 1.0
    """Of the device's memory, where several workers have one device."""
    division: CpuDivision | None = None
    """Where its host has workers of both kinds."""


@frozen
class Changes:
    """The starts and stops that turn the running workers into the desired ones."""

    starts: tuple[WorkerSpec, ...]
    stops: tuple[str, ...]


def usual_workers(host: Host, capacity: HostCapacity) -> int:
    """Return how many workers a host gives by default."""
    if capacity.devices:
        return len(capacity.devices) * host.workers_per_gpu + (host.workers or 0)
    return host.workers or default_cpu_workers(capacity.cpus // (host.nthreads or 1) or 1)


def workers_of(
    host: Host, capacity: HostCapacity, share: int, listed: int | None = None
) -> Iterator[WorkerSpec]:
    """Yield a host's workers: the first of every device, then the second, and so on; CPU workers.

    `share` workers of both kinds share its CPUs and memory. `listed` is how many there are, by
    default as many; only on a host without devices it may be another number.
    """
    share = max(1, share)
    pinned = [device for _ in range(host.workers_per_gpu) for device in capacity.devices]
    on_cpus = (share if listed is None else listed) - len(pinned)
    cpus_each = (capacity.cpus - len(pinned)) // max(1, share - len(pinned))
    threads = host.nthreads or max(1, cpus_each)
    own = host.memory_bytes
    common = WorkerSpec(
        name="",
        host=host.name,
        device_uuid=None,
        nthreads=threads,
        memory_limit_bytes=capacity.memory_bytes // share if own is None else own,
        env=host.env,
        device_share=1 / host.workers_per_gpu,
    )
    division = None
    if pinned and on_cpus:
        division = CpuDivision(tuple(device.uuid for device in pinned), on_cpus * threads)
    for index, device in enumerate(pinned):
        yield replace(
            common,
            name=_name(host.name, device, index // len(capacity.devices)),
            device_uuid=device.uuid,
            nthreads=1 if division else host.nthreads or 1,
            division=division,
        )
    for index in range(on_cpus):
        yield replace(
            common,
            name=_name(host.name, None, index),
            division=division and replace(division, first=index * threads),
        )


def cpus_of(
    spec: WorkerSpec, allowed: frozenset[int], near: Callable[[str], frozenset[int]]
) -> frozenset[int]:
    """Return the CPUs to pin a worker to, of those allowed; none is any.

    `near` gives the CPUs near a device. Workers of both kinds on one host have no CPU in common,
    unless it has fewer than they need.

    >>> division = CpuDivision(("GPU-0",), cpus=4, first=2)
    >>> cpu_worker = WorkerSpec("a:cpu1", "a", None, 2, 0, division=division)
    >>> gpu_worker = replace(cpu_worker, device_uuid="GPU-0")
    >>> eight, near = frozenset(range(8)), lambda uuid: frozenset({2, 3, 4})
    >>> sorted(cpus_of(cpu_worker, eight, near)), sorted(cpus_of(gpu_worker, eight, near))
    ([3, 4], [2])
    """
    nearby = near(spec.device_uuid) if spec.device_uuid else frozenset[int]()
    division = spec.division
    if division is None or len(division.devices) + division.cpus > len(allowed):
        return nearby
    left = sorted(allowed)
    for device in division.devices:
        close = near(device)
        left.remove(next((cpu for cpu in left if cpu in close), left[0]))
    if spec.device_uuid is None:
        return frozenset(left[division.first : division.first + spec.nthreads])
    others = frozenset(left[: division.cpus])
    return nearby - others or allowed - others


def default_cpu_workers(cpus: int) -> int:
    """Return how many workers `LocalCluster` would start on so many CPUs.

    Source: `distributed.deploy.utils.nprocesses_nthreads` (distributed 2026.8).

    >>> [default_cpu_workers(cpus) for cpus in (1, 2, 4, 8, 12, 64, 128)]
    [1, 2, 4, 4, 4, 8, 16]
    """
    if cpus <= 4:
        return max(cpus, 1)
    return min(n for n in range(isqrt(cpus - 1) + 1, cpus + 1) if cpus % n == 0)


def _name(host: str, device: DeviceReading | None, slot: int) -> str:
    """Return a worker's name.

    >>> _name("a", DeviceReading("MIG-1", "0.2", "H200"), 1), _name("a", None, 0)
    ('a:mig0.2.1', 'a:cpu0')
    """
    if device is None:
        return f"{host}:cpu{slot}"
    return f"{host}:{device.short_name}" + (f".{slot}" if slot else "")
