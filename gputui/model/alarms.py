"""Alarms: conditions on slots and hosts → alarms, with hysteresis. Pure.

A condition is an alarm once it has held for a while, and no longer once it has not held for a
while, so that a reading on the edge does not blink. High utilisation is what people want and no
alarm, unless the card takes no power for it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from gputui.model.frozen import frozen
from gputui.model.readings import DeviceReading, Owner, recent_xid, seems_to_hang
from gputui.model.slots import Slot, SlotState
from gputui.model.snapshot import (
    AWAY,
    ClusterState,
    HostState,
    SchedulerState,
    Snapshot,
    WorkerState,
)

OTHER, IDLE = Owner.OTHER, SlotState.IDLE
MEMORY_FULL = 0.95
CLEARED_AFTER_S = 5.0


class AlarmKind(StrEnum):
    """The kinds of alarms."""

    SCHEDULER_LOST = "scheduler lost"
    FAILED = "host failed"
    NO_WORKERS = "no worker is up"
    LOST = "GPU lost"
    SILENT = "host silent"
    WORKER_SILENT = "worker silent"
    WRONG_DEVICE = "wrong GPU"
    CRASHED = "worker crashed"
    CRASH_LOOP = "crash loop"
    HANGS = "busy at idle power"
    XID = "Xid"
    ECC = "ECC errors"
    THROTTLED = "throttled"
    MEMORY = "memory full"
    FOREIGN = "used by others"
    IDLE = "idle while tasks wait"


RAISED_AFTER_S = {
    AlarmKind.NO_WORKERS: 3.0,
    AlarmKind.HANGS: 60.0,
    AlarmKind.THROTTLED: 5.0,
    AlarmKind.MEMORY: 3.0,
    AlarmKind.FOREIGN: 3.0,
    AlarmKind.IDLE: 10.0,
}
"""How long a condition holds before it is an alarm; at once where it is not named."""
SERIOUS = frozenset(
    {
        AlarmKind.SCHEDULER_LOST,
        AlarmKind.FAILED,
        AlarmKind.NO_WORKERS,
        AlarmKind.LOST,
        AlarmKind.WORKER_SILENT,
        AlarmKind.WRONG_DEVICE,
        AlarmKind.CRASHED,
        AlarmKind.CRASH_LOOP,
        AlarmKind.HANGS,
        AlarmKind.XID,
        AlarmKind.ECC,
    }
)


@frozen
class Alarm:
    """A condition that needs attention."""

    subject: str
    """A slot's key, a host's name, "scheduler" or "cluster"."""
    kind: AlarmKind
    since: float
    held_at: float
    """When its condition last held; in the past while the alarm is shown a little longer."""
    raised: bool = False
    """Whether its condition has held for long enough."""

    @property
    def serious(self) -> bool:
        """Whether something is broken, rather than worth a look."""
        return self.kind in SERIOUS


class Alarms:
    """The conditions of the last moments."""

    def __init__(self) -> None:
        self._conditions: dict[tuple[str, AlarmKind], Alarm] = {}

    def look(self, snapshot: Snapshot, slots: Iterable[Slot]) -> None:
        """Take in what holds in a snapshot."""
        at = snapshot.taken_at
        for key in _conditions(snapshot, slots):
            alarm = self._conditions.get(key) or Alarm(*key, at, at)
            raised = alarm.raised or at - alarm.since >= RAISED_AFTER_S.get(key[1], 0.0)
            self._conditions[key] = replace(alarm, held_at=at, raised=raised)
        for key, alarm in list(self._conditions.items()):
            if at - alarm.held_at > (CLEARED_AFTER_S if alarm.raised else 0.0):
                del self._conditions[key]

    def __iter__(self) -> Iterator[Alarm]:
        """Give the alarms, the serious ones first, then the oldest."""
        raised = [alarm for alarm in self._conditions.values() if alarm.raised]
        return iter(sorted(raised, key=lambda alarm: (not alarm.serious, alarm.since)))

    def by_subject(self) -> dict[str, list[AlarmKind]]:
        """Group the kinds of alarms by slot or host, serious ones first."""
        found: dict[str, list[AlarmKind]] = {}
        for alarm in self:
            found.setdefault(alarm.subject, []).append(alarm.kind)
        return found


def _conditions(snapshot: Snapshot, slots: Iterable[Slot]) -> Iterator[tuple[str, AlarmKind]]:
    came_up = snapshot.state is ClusterState.RUNNING
    if came_up and snapshot.scheduler.state in (SchedulerState.LOST, SchedulerState.STARTING):
        yield "scheduler", AlarmKind.SCHEDULER_LOST
    for host in snapshot.hosts:
        if host.state in AWAY:
            yield host.name, AlarmKind.SILENT
        elif host.state is HostState.FAILED:
            yield host.name, AlarmKind.FAILED
    if without_workers(snapshot):
        yield "cluster", AlarmKind.NO_WORKERS
    queued = snapshot.scheduler.queued > 0
    watching = snapshot.state is ClusterState.WATCHING
    for slot in slots:
        if slot.host_silent:
            continue
        if slot.state in _OF_STATE:
            yield slot.key, _OF_STATE[slot.state]
        elif queued and slot.state is IDLE and slot.device is not None:
            yield slot.key, AlarmKind.IDLE
        if slot.device is not None:
            for kind in _of_device(slot.device, snapshot.taken_at):
                if not watching or kind not in _OF_USE:
                    yield slot.key, kind


COMING_UP = (WorkerState.WANTED, WorkerState.STARTING)


def without_workers(snapshot: Snapshot) -> bool:
    """Return whether a cluster has lost all of the workers that it should have.

    Hosts on their way, and workers that start for the first time, are waited for.
    """
    expected = snapshot.workers or snapshot.wanted_workers
    if not expected or snapshot.any_up:
        return False
    settled = all(host.state.final or host.state in AWAY for host in snapshot.hosts)
    first = any(worker.state in COMING_UP and not worker.restarts for worker in snapshot.workers)
    return settled and not first


_OF_STATE = {
    SlotState.LOST: AlarmKind.LOST,
    SlotState.SILENT: AlarmKind.WORKER_SILENT,
    SlotState.WRONG_DEVICE: AlarmKind.WRONG_DEVICE,
    SlotState.CRASHED: AlarmKind.CRASHED,
    SlotState.CRASH_LOOP: AlarmKind.CRASH_LOOP,
}


_OF_USE = (AlarmKind.MEMORY, AlarmKind.FOREIGN)
"""What is no trouble while no worker is wanted: that GPUs are used."""


def _of_device(device: DeviceReading, now: float) -> Iterator[AlarmKind]:
    if device.throttle_reasons:
        yield AlarmKind.THROTTLED
    if seems_to_hang(device):
        yield AlarmKind.HANGS
    if recent_xid(device, now):
        yield AlarmKind.XID
    if device.ecc_errors:
        yield AlarmKind.ECC
    used, total = device.memory_used_bytes, device.memory_total_bytes
    if used and total and used / total > MEMORY_FULL:
        yield AlarmKind.MEMORY
    if OTHER in [process.owner for process in device.processes]:
        yield AlarmKind.FOREIGN
