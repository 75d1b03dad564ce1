"""What a head looks at all the time, attached or not: snapshots, the last hour, and alarms.

Snapshots go to the frontends that look, once a second, sooner when a state changes. The last hour
of every GPU, host and CPU worker is kept for screens that attach: they get one `HistoryTaken` a
host, and go on from the snapshots by themselves. Alarms that begin and end are events, so that a
screen that attaches later shows what happened.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from gputui.head.server import FrontendConnection, FrontendServer
from gputui.model.alarms import SERIOUS, AlarmKind, Alarms
from gputui.model.readings import Owner, xid_words
from gputui.model.series import FINE_S, NOTHING, HistoryTaken, Row, of_device, of_host, of_worker
from gputui.model.slots import Slot, slots_of
from gputui.model.snapshot import (
    HostState,
    HostStatus,
    Severity,
    Snapshot,
    WorkerState,
    WorkerStatus,
)
from gputui.process.background import within
from gputui.protocol.frontend import SnapshotTaken

if TYPE_CHECKING:
    from gputui.model.history import History

INTERVAL_S = 1.0
CLOSEST_S = 0.2
"""However much changes, snapshots are at least so far apart."""
REST = 8
"""Pause after a snapshot of thousands of GPUs, in multiples of the time that it took to make;
encoding it is part of that pause."""
HISTORY_AFTER_S = 0.2
"""Delay before the history: the frontend draws the present state first."""
RECORDED_ELSEWHERE = frozenset(
    {
        AlarmKind.SCHEDULER_LOST,
        AlarmKind.FAILED,
        AlarmKind.SILENT,
        AlarmKind.CRASHED,
        AlarmKind.CRASH_LOOP,
    }
)
"""What is an event of the scheduler, a host or a worker itself is not recorded twice."""


class ClusterView:
    """Takes snapshots for the frontends that look, and for the alarms."""

    def __init__(
        self, snapshot: Callable[[int], Snapshot], server: FrontendServer, alarms: "AlarmWatch"
    ) -> None:
        self._snapshot, self._server, self._alarms = snapshot, server, alarms
        self._sequence = 0
        self.newest: Snapshot | None = None
        """The last one that was taken, a second ago at most."""
        self.changed = asyncio.Event()
        """Set when a state is another now, and when a frontend begins to look."""

    async def run(self) -> None:
        """Take and send snapshots until cancelled."""
        while True:
            self.changed.clear()
            began = time.monotonic()
            self.show()
            rest_s = min(INTERVAL_S, max(CLOSEST_S, REST * (time.monotonic() - began)))
            await asyncio.sleep(rest_s)
            await within(INTERVAL_S - rest_s, self.changed.wait())

    def show(self) -> None:
        """Take a snapshot, send it to those who look, and look for alarms."""
        snapshot = self.take()
        for frontend in self._server.frontends:
            if frontend.snapshots:
                frontend.send(SnapshotTaken(snapshot))
        self._alarms.look(snapshot)

    def take(self) -> Snapshot:
        """Take a snapshot now."""
        self._sequence += 1
        self.newest = self._snapshot(self._sequence)
        return self.newest


class RecentHistory:
    """The readings of every host."""

    def __init__(
        self,
        hosts: Callable[[], Iterable[HostStatus]],
        cpu_workers: Callable[[], Iterable[WorkerStatus]],
    ) -> None:
        self._hosts, self._cpu_workers = hosts, cpu_workers
        self._keys: dict[str, tuple[str, ...]] = {}
        """Of each host, by its name."""

    async def run(self) -> None:
        """Take a row of everything each second, until cancelled."""
        await asyncio.sleep(FINE_S)  # what ends sooner imports no NumPy
        await asyncio.to_thread(lambda: self._history)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self.take(time.time())
            due = max(due + FINE_S, loop.time())
            await asyncio.sleep(due - loop.time())

    def take(self, at: float) -> None:
        """Take the next row; hosts that are gone are forgotten."""
        on_hosts: dict[str, list[WorkerStatus]] = defaultdict(list)
        for worker in self._cpu_workers():
            on_hosts[worker.host].append(worker)
        keys: list[str] = []
        rows: list[Row] = []
        self._keys = {}
        for host in self._hosts():
            workers = on_hosts.get(host.name, ())
            devices = [device.uuid for device in host.devices]
            own = (host.name, *devices, *[worker.name for worker in workers])
            self._keys[host.name] = own
            keys += own
            if host.state is HostState.READY:
                rows.append(of_host(host.reading))
                rows += [*map(of_device, host.devices), *map(of_worker, workers)]
            else:
                rows += [NOTHING] * len(own)
        self._history.add(at, tuple(keys), rows)

    def taken(self) -> Iterator[HistoryTaken]:
        """Yield the history, a message a host."""
        for host in tuple(self._keys):
            if (keys := self._keys.get(host)) is not None:
                yield self._history.taken(host, keys)

    async def send_to(self, frontend: FrontendConnection) -> None:
        """Send the history, a host at a time, no faster than the frontend reads."""
        await asyncio.sleep(HISTORY_AFTER_S)
        for taken in self.taken():
            if frontend.gone.is_set():
                return
            frontend.send(taken)
            await frontend.channel.flush(None)
            await asyncio.sleep(0)  # a channel that has ended holds nothing up

    @cached_property
    def _history(self) -> "History":
        from gputui.model.history import History

        return History()


class AlarmWatch:
    """Compares the alarms of now with those that were recorded."""

    def __init__(self, tell: Callable[[Severity, str, str, str, AlarmKind], None]) -> None:
        self._tell = tell
        self._alarms = Alarms()
        self._recorded: set[tuple[str, AlarmKind]] = set()

    def look(self, snapshot: Snapshot) -> None:
        """Record what is an alarm since the last look, and what no longer is."""
        slots = {slot.key: slot for slot in slots_of(snapshot)}
        self._alarms.look(snapshot, slots.values())
        raised = {
            (alarm.subject, alarm.kind)
            for alarm in self._alarms
            if alarm.kind not in RECORDED_ELSEWHERE
        }
        for subject, kind in sorted(raised - self._recorded):
            severity = Severity.ERROR if kind in SERIOUS else Severity.WARNING
            text = described(kind, slots.get(subject))
            self._tell(severity, subject, "alarm", text, kind)
        for subject, kind in sorted(self._recorded - raised):
            self._tell(Severity.INFO, subject, "recovered", f"no longer: {kind}", kind)
        self._recorded = raised


def described(kind: AlarmKind, slot: Slot | None) -> str:
    """Return an alarm's message: what is wrong, and the details."""
    if slot is None:
        return kind.value
    if kind is AlarmKind.WORKER_SILENT:
        silent = [worker for worker in slot.workers if worker.state is WorkerState.SILENT]
        return f"{kind}: " + ", ".join(f"{worker.name}: {worker.reason}" for worker in silent)
    device = slot.device
    if device is None:
        return kind.value
    details = {
        AlarmKind.THROTTLED: ", ".join(device.throttle_reasons),
        AlarmKind.HANGS: f"{device.power_w or 0:.0f} W, {device.utilization_percent or 0:.0f} %",
        AlarmKind.XID: xid_words(device.xid),
        AlarmKind.ECC: f"{device.ecc_errors} uncorrected",
        AlarmKind.FOREIGN: "; ".join(
            f"{process.user or 'unknown user'}: {process.command or process.pid}"
            for process in device.processes
            if process.owner is Owner.OTHER
        ),
        AlarmKind.WRONG_DEVICE: ", ".join(
            f"{worker.name} is on {worker.seen_device_uuid}" for worker in slot.workers
        ),
    }
    detail = details.get(kind, "")
    return f"{kind}: {detail}" if detail else kind.value
