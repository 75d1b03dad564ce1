"""Hosts and what they have → the workers that they can run, as `WorkerSpec`s.

Pure, as is what decides on top of it (`fleet/desired.py`), so that a preview on the screen and
the change itself come from the same functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from gputui.model.bounds import (
    Bytes,
    Name,
    Options,
    Share,
    SmallNumber,
)
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """A host's capacity: the devices that its line asks for and that may be used, CPUs, memory."""

    devices: tuple[DeviceReading, ...]
    cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker to run: where, on which device, and within what limits."""

    name: Name
    host: Name
    device_uuid: Name | None
    nthreads: SmallNumber
    memory_limit_bytes: Bytes
    """0 is no limit."""
    env: Options = ()
    memory_share: Share = 0.0
    """Of the host's memory, where its line names no limit: what the limit grows with."""
    device_share: Share = 1.0
    """Of the device's memory, where several workers have one device."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The starts and stops that turn the running workers into the desired ones."""

    starts: tuple[WorkerSpec, ...]
    stops: tuple[str, ...]


def usual_workers(host: Host, capacity: HostCapacity) -> int:
    """Return how many workers a host gives by default."""
    if capacity.devices:
        return len(capacity.devices) * host.workers_per_gpu
    return host.workers or default_cpu_workers(capacity.cpus // (host.nthreads or 1) or 1)


def workers_of(
    host: Host, capacity: HostCapacity, share: int, listed: int | None = None
) -> Iterator[WorkerSpec]:
    """Yield a host's workers: the first of every device, then the second, and so on.

    On a host for CPU workers the first `listed` of them, by default as many as `share`, which is
    how many share its CPUs and memory.
    """
    devices: tuple[DeviceReading | None, ...] = capacity.devices
    on_cpu, share = not devices, max(1, share)
    nthreads = host.nthreads or (max(1, capacity.cpus // share) if on_cpu else 1)
    own = host.memory_bytes
    memory = capacity.memory_bytes // share if own is None else own
    turns = host.workers_per_gpu if not on_cpu else share if listed is None else listed
    for turn in range(turns):
        for device in devices or (None,):
            yield WorkerSpec(
                name=_name(host.name, device, turn),
                host=host.name,
                device_uuid=device.uuid if device else None,
                nthreads=nthreads,
                memory_limit_bytes=memory,
                env=host.env,
                memory_share=1 / share if own is None else 0.0,
                device_share=1 / host.workers_per_gpu,
            )


def default_cpu_workers(cpus: int) -> int:
    """Return how many workers `LocalCluster` would start on so many CPUs.

    Source: `distributed.deploy.utils.nprocesses_nthreads` (distributed 2026.8).

    >>> [default_cpu_workers(cpus) for cpus in (1, 2, 4, 8, 12, 64, 128)]
    [1, 2, 4, 4, 4, 8, 16]
    """
    if cpus <= 4:
        return max(cpus, 1)
    root = isqrt(cpus - 1) + 1
    return min(n for n in range(root, cpus + 1) if cpus % n == 0)


def _name(host: str, device: DeviceReading | None, slot: int) -> str:
    """Return a worker's name.

    >>> _name("a", DeviceReading("MIG-1", "0.2", "H200"), 1), _name("a", None, 0)
    ('a:mig0.2.1', 'a:cpu0')
    """
    if device is None:
        return f"{host}:cpu{slot}"
    return f"{host}:{device.short_name}" + (f".{slot}" if slot else "")
