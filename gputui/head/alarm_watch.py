"""Alarms into the event log: those that begin, and those that end.

Looked for every few seconds, attached or not, so that a screen that attaches later shows what
happened. What is an event of a host or a worker itself (failed, crashed …) is not recorded twice.
"""

import asyncio
from collections.abc import Callable

from gputui.model.alarms import SERIOUS, AlarmKind, Alarms
from gputui.model.readings import Owner
from gputui.model.slots import Slot, slots_of
from gputui.model.snapshot import Severity, Snapshot, WorkerState

INTERVAL_S = 2.0
RECORDED_ELSEWHERE = frozenset(
    {AlarmKind.FAILED, AlarmKind.SILENT, AlarmKind.CRASHED, AlarmKind.CRASH_LOOP}
)


class AlarmWatch:
    """Compares the alarms of now with those that were recorded."""

    def __init__(
        self,
        recent: Callable[[float], Snapshot],
        tell: Callable[[Severity, str, str, str], None],
    ) -> None:
        """Look at snapshots no older than asked for, and record events."""
        self._recent, self._tell = recent, tell
        self._alarms = Alarms()
        self._recorded: set[tuple[str, AlarmKind]] = set()

    async def run(self) -> None:
        """Check for alarms until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.look(self._recent(INTERVAL_S))

    def look(self, snapshot: Snapshot) -> None:
        """Record what is an alarm since the last look, and what no longer is."""
        slots = {slot.key: slot for slot in slots_of(snapshot)}
        self._alarms.look(snapshot, slots.values())
        raised = {(alarm.subject, alarm.kind) for alarm in self._alarms}
        for subject, kind in sorted(raised - self._recorded):
            if kind not in RECORDED_ELSEWHERE:
                severity = Severity.ERROR if kind in SERIOUS else Severity.WARNING
                self._tell(severity, subject, "alarm", described(kind, slots.get(subject)))
        for subject, kind in sorted(self._recorded - raised):
            if kind not in RECORDED_ELSEWHERE:
                self._tell(Severity.INFO, subject, "recovered", f"no longer: {kind}")
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
