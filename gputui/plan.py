"""Hosts × devices × the number wanted → worker specs; wanted against running → what to change.

Called by the fleet whenever facts arrive or somebody scales; pure, so that a preview on the
screen and the change itself come from the same function.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from gputui.hosts import Host


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """What planning needs to know of a GPU or MIG instance."""

    uuid: str
    label: str
    """`0` for a GPU, `0.2` for a MIG instance: the name of the worker comes from it."""
    usable: bool = True


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What a host has, as its agent found it."""

    devices: tuple[PlannedDevice, ...]
    cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker to run: where, on which device, and within what limits."""

    name: str
    host: str
    device_uuid: str | None
    device_label: str | None
    nthreads: int
    memory_limit_bytes: int
    env: tuple[tuple[str, str], ...] = ()
    memory_share: float = 0.0
    """Of the host's memory, where its line names no limit: what the limit grows with."""
    device_share: float = 1.0
    """Of the device's memory, where several workers have one device."""

    @property
    def resources(self) -> dict[str, float]:
        """Dask's worker resources: one `GPU` where there is one."""
        return {"GPU": 1.0} if self.device_uuid else {}


@dataclass(frozen=True, slots=True)
class Changes:
    """What turns the running workers into the wanted ones."""

    starts: tuple[WorkerSpec, ...]
    stops: tuple[str, ...]


def plan(
    hosts: Sequence[Host],
    capacities: Mapping[str, HostCapacity],
    wanted: int | None = None,
    keep: Collection[str] = (),
) -> tuple[WorkerSpec, ...]:
    """Return the workers to run on the hosts that have a capacity.

    `wanted` is how many in all, None as many as the hosts give; fewer are spread over the
    hosts, those named in `keep` first. More than the hosts give go to hosts for CPU workers
    that have no number of their own.
    """
    ready = [host for host in hosts if host.name in capacities]
    elastic = sum(_is_elastic(host, capacities[host.name]) for host in ready)
    fixed = {host.name: _natural(host, capacities[host.name]) for host in ready}
    short = max(0, (wanted or 0) - sum(fixed.values()))
    rows = []
    for host in ready:
        capacity, count = capacities[host.name], fixed[host.name]
        if short and _is_elastic(host, capacity):
            extra = -(-short // elastic)
            count, short, elastic = count + extra, short - extra, elastic - 1
        rows.append(list(_workers_of(host, capacity, count)))
    spread = _one_of_each(rows)
    if wanted is not None:
        spread = sorted(spread, key=lambda spec: spec.name not in keep)[:wanted]
    chosen = {spec.name for spec in spread}
    return tuple(spec for row in rows for spec in row if spec.name in chosen)


def changes(specs: Iterable[WorkerSpec], running: Collection[str]) -> Changes:
    """Return what to start and what to stop so that just these workers run."""
    by_name = {spec.name: spec for spec in specs}
    return Changes(
        starts=tuple(spec for name, spec in by_name.items() if name not in running),
        stops=tuple(name for name in running if name not in by_name),
    )


def chosen_devices(host: Host, devices: Sequence[PlannedDevice]) -> tuple[PlannedDevice, ...]:
    """Return the devices that a host's line asks for, of those that may be used.

    >>> gpus = [PlannedDevice("GPU-a", "0"), PlannedDevice("GPU-b", "1")]
    >>> [device.uuid for device in chosen_devices(Host("h", gpus=("1",)), gpus)]
    ['GPU-b']
    """
    usable = [device for device in devices if device.usable]
    if host.gpus is None:
        return tuple(usable)
    found = []
    for gpu in host.gpus:
        for device in usable:
            parent = device.label.partition(".")[0]
            named = gpu in (device.label, parent) or device.uuid.startswith(gpu)
            if named and device not in found:
                found.append(device)
    return tuple(found)


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


def _is_elastic(host: Host, capacity: HostCapacity) -> bool:
    """Whether more CPU workers than usual may run there."""
    return host.workers is None and not chosen_devices(host, capacity.devices)


def _natural(host: Host, capacity: HostCapacity) -> int:
    """Return how many workers a host gives."""
    if devices := chosen_devices(host, capacity.devices):
        return len(devices) * host.workers_per_gpu
    return host.workers or default_cpu_workers(capacity.cpus // (host.nthreads or 1) or 1)


def _workers_of(host: Host, capacity: HostCapacity, count: int) -> Iterator[WorkerSpec]:
    """Yield a host's workers: the first of every device, then the second, and so on."""
    devices: tuple[PlannedDevice | None, ...] = chosen_devices(host, capacity.devices)
    on_cpu = not devices
    nthreads = host.nthreads or (max(1, capacity.cpus // count) if on_cpu else 1)
    memory = host.memory_bytes or capacity.memory_bytes // count
    for slot in range(count if on_cpu else host.workers_per_gpu):
        for device in devices or (None,):
            yield WorkerSpec(
                name=_name(host.name, device, slot),
                host=host.name,
                device_uuid=device.uuid if device else None,
                device_label=device.label if device else None,
                nthreads=nthreads,
                memory_limit_bytes=memory,
                env=host.env,
                memory_share=0.0 if host.memory_bytes else 1 / count,
                device_share=1 / host.workers_per_gpu,
            )


def _name(host: str, device: PlannedDevice | None, slot: int) -> str:
    """Return a worker's name.

    >>> _name("a", PlannedDevice("GPU-1", "0"), 1), _name("a", PlannedDevice("MIG-1", "0.2"), 0)
    ('a:gpu0.1', 'a:mig0.2')
    """
    if device is None:
        return f"{host}:cpu{slot}"
    kind = "mig" if "." in device.label else "gpu"
    return f"{host}:{kind}{device.label}" + (f".{slot}" if slot else "")


def _one_of_each(rows: Sequence[Sequence[WorkerSpec]]) -> list[WorkerSpec]:
    """Return the workers of all hosts in turns, one of each host at a time."""
    longest = max(map(len, rows), default=0)
    return [row[turn] for turn in range(longest) for row in rows if turn < len(row)]
