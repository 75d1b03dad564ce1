"""A snapshot → a slot for each place a worker can have: a GPU, a MIG instance, a CPU worker.

A slot joins the device with the workers on it and says in one state what is the matter. Pure;
the alarms, and the screen's fleet and its filter, all work on slots.
"""

from collections import defaultdict
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from gputui.model.readings import DeviceReading, Owner, in_use, is_free
from gputui.model.snapshot import AWAY, HostState, HostStatus, Snapshot, WorkerState, WorkerStatus


class SlotState(StrEnum):
    """The state of a slot: the worst that applies."""

    LOST = "lost"
    SILENT = "silent"
    CRASHED = "crashed"
    CRASH_LOOP = "crash-loop"
    WRONG_DEVICE = "wrong-device"
    BUSY = "busy"
    IDLE = "idle"
    PAUSED = "paused"
    STARTING = "starting"
    RETIRING = "retiring"
    FOREIGN = "foreign"
    FREE = "free"
    EXCLUDED = "excluded"


_BY_WORKER = {
    WorkerState.CRASHED: SlotState.CRASHED,
    WorkerState.CRASH_LOOP: SlotState.CRASH_LOOP,
    WorkerState.BUSY: SlotState.BUSY,
    WorkerState.IDLE: SlotState.IDLE,
    WorkerState.REGISTERED: SlotState.IDLE,
    WorkerState.PAUSED: SlotState.PAUSED,
    WorkerState.SILENT: SlotState.SILENT,
    WorkerState.STARTING: SlotState.STARTING,
    WorkerState.WANTED: SlotState.STARTING,
    WorkerState.RETIRING: SlotState.RETIRING,
}
PLACES = {state: place for place, state in enumerate(SlotState)}
"""State → its place among the states, the worst at 0."""


class Slot(NamedTuple):
    """A device (None for a CPU worker) and the workers on it; a tuple, as thousands are made."""

    key: str
    """The name that its first worker has or would have: `host:gpu0`."""
    host: HostStatus
    device: DeviceReading | None
    workers: tuple[WorkerStatus, ...]
    state: SlotState

    @property
    def label(self) -> str:
        """The key without the host's name."""
        return self.key.removeprefix(self.host.name + ":")

    @property
    def on_gpu(self) -> bool:
        """Whether it is a GPU, though its readings be missing."""
        return self.device is not None or any(worker.device_uuid for worker in self.workers)

    @property
    def dead(self) -> bool:
        """Whether its readings are old ones; those of a silent worker's device are not."""
        return self.state is SlotState.LOST or self.host_silent

    @property
    def host_silent(self) -> bool:
        """Whether its host does not answer."""
        return self.host.state in AWAY

    @property
    def foreign(self) -> bool:
        """Whether a process that is not of this cluster is on its device."""
        return self.device is not None and any(
            process.owner is not Owner.OURS for process in self.device.processes
        )

    def total(self, field: str) -> int | float | None:
        """Return the sum of a worker's reading over its workers; None where none has it.

        >>> from gputui.model.snapshot import HostStatus, HostState, WorkerStatus, WorkerState
        >>> workers = tuple(WorkerStatus(n, "h", WorkerState.IDLE, ready=2) for n in "ab")
        >>> slot = Slot("a", HostStatus("h", HostState.READY, 0), None, workers, SlotState.IDLE)
        >>> slot.total("ready"), slot.total("rss_bytes")
        (4, None)
        """
        values = [value for each in self.workers if (value := getattr(each, field)) is not None]
        return sum(values) if values else None


def slots_of(snapshot: Snapshot) -> list[Slot]:
    """Return all slots, host by host in the snapshot's order."""
    on_hosts: dict[str, dict[str | None, list[WorkerStatus]]] = defaultdict(dict)
    for worker in snapshot.workers:
        on_hosts[worker.host].setdefault(worker.device_uuid, []).append(worker)
    slots: list[Slot] = []
    for host in snapshot.hosts:
        on_device = on_hosts[host.name]
        for device in host.devices:
            workers = tuple(on_device.pop(device.uuid, ()))
            key = f"{host.name}:{device.short_name}"
            slots.append(Slot(key, host, device, workers, _state(host, device, workers)))
        for worker in _without_device(on_device):
            slots.append(Slot(worker.name, host, None, (worker,), _state(host, None, (worker,))))
    return slots


def on_gpus(slots: Collection[Slot]) -> bool:
    """Return whether any of these is a GPU; with none at all it may be."""
    return not slots or any(slot.device is not None for slot in slots)


def _without_device(on_device: dict[str | None, list[WorkerStatus]]) -> list[WorkerStatus]:
    """Return the workers whose device is not among the host's: CPU workers, or no NVML.

    By number, not as they came: one that was started again stays where it was.
    """
    found = [worker for workers in on_device.values() for worker in workers]
    return sorted(found, key=lambda worker: (len(worker.name), worker.name))


def _state(
    host: HostStatus, device: DeviceReading | None, workers: tuple[WorkerStatus, ...]
) -> SlotState:
    if device is not None and device.lost:
        return SlotState.LOST
    if host.state in AWAY:
        return SlotState.SILENT
    if workers:
        return min(map(state_of_worker, workers), key=PLACES.__getitem__)
    if device is not None and in_use(device):
        return SlotState.FOREIGN
    free = device is None or (is_free(device) and host.state is not HostState.FAILED)
    return SlotState.FREE if free else SlotState.EXCLUDED


def state_of_worker(worker: WorkerStatus) -> SlotState:
    """Return the slot state for a worker that is not gone."""
    return SlotState.WRONG_DEVICE if wrong_device(worker) else _BY_WORKER[worker.state]


def wrong_device(worker: WorkerStatus) -> bool:
    """Return whether a worker's CUDA context is on another device than it was pinned to."""
    seen = worker.seen_device_uuid
    return seen is not None and worker.device_uuid is not None and seen != worker.device_uuid
