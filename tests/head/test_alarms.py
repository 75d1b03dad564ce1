"""Alarms in the event log: told once when they begin, and once when they are over."""

from dataclasses import dataclass, field, replace

from gputui.head.cluster_view import AlarmWatch
from gputui.model.readings import DeviceProcess, Owner
from gputui.model.snapshot import Severity, Snapshot, WorkerState
from tests.tui.build import EPOCH, device, host, snapshot, worker


@dataclass
class Teller:
    """What the watch needs of a head: somebody to tell."""

    told: list[tuple[Severity, str, str, str]] = field(default_factory=list)

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        self.told.append((severity, subject, kind, text))


def look(seconds: range, seen: Snapshot, watch: AlarmWatch) -> None:
    for second in seconds:
        watch.look(replace(seen, taken_at=EPOCH + second))


def watching() -> tuple[Teller, AlarmWatch]:
    teller = Teller()
    return teller, AlarmWatch(teller.tell)


def test_an_alarm_is_told_once_and_its_end_once() -> None:
    teller, watch = watching()
    hot = snapshot(host("h", device(throttle_reasons=("thermal",))), workers=(worker(),))
    look(range(0, 20, 2), hot, watch)
    assert teller.told == [(Severity.WARNING, "h:gpu0", "alarm", "throttled: thermal")]
    look(range(20, 40, 2), snapshot(host("h", device()), workers=(worker(),)), watch)
    assert teller.told[1:] == [(Severity.INFO, "h:gpu0", "recovered", "no longer: throttled")]


def test_a_condition_that_comes_and_goes_is_told_of_once() -> None:
    teller, watch = watching()
    hot = snapshot(host("h", device(throttle_reasons=("thermal",))), workers=(worker(),))
    cool = snapshot(host("h", device()), workers=(worker(),))
    look(range(0, 10, 2), hot, watch)
    for second in range(10, 40, 4):
        look(range(second, second + 2), cool, watch)
        look(range(second + 2, second + 4), hot, watch)
    assert len(teller.told) == 1


def test_another_persons_process_is_told_of_by_user_and_command() -> None:
    teller, watch = watching()
    theirs = DeviceProcess(99, Owner.OTHER, "mira", "python train.py", 2**30)
    look(range(0, 10, 2), snapshot(host("h", device(processes=(theirs,)))), watch)
    assert teller.told[0][3] == "used by others: mira: python train.py"


def test_what_a_worker_tells_itself_is_not_told_again() -> None:
    teller, watch = watching()
    parked = worker(state=WorkerState.CRASH_LOOP)
    workers = (parked, worker(1))
    look(range(0, 10, 2), snapshot(host("h", device(0), device(1)), workers=workers), watch)
    assert not teller.told


def test_a_silent_worker_is_an_alarm_with_its_reason_though_its_device_is_read() -> None:
    teller, watch = watching()
    silent = worker(state=WorkerState.SILENT, reason="no heartbeat for 7 s", silent_for_s=7.0)
    look(range(0, 2, 2), snapshot(host("h", device()), workers=(silent,)), watch)
    text = "worker silent: h:gpu0: no heartbeat for 7 s"
    assert teller.told == [(Severity.ERROR, "h:gpu0", "alarm", text)]
