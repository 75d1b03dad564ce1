"""Alarms in the event log: told once when they begin, and once when they are over."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gputui import presets
from gputui.demo.simulated_runs import GENERIC, STAGES
from gputui.head.cluster_view import AlarmWatch
from gputui.model.alarms import AlarmKind, Alarms
from gputui.model.examination import ExaminedScheduler
from gputui.model.readings import DeviceProcess, Owner
from gputui.model.slots import slots_of
from gputui.model.snapshot import Event, Severity, Snapshot, WorkerState
from gputui.model.verdicts import Evidence, verdicts
from tests.tui.build import EPOCH, device, host, snapshot, worker

CALM = (Severity.INFO, "h:gpu0", "recovered", "it works again", AlarmKind.HANGS)


def look(seconds: range, seen: Snapshot, watch: AlarmWatch) -> None:
    for second in seconds:
        watch.look(replace(seen, taken_at=EPOCH + second))


Told = list[tuple[Severity, str, str, str, AlarmKind]]


def watching() -> tuple[Told, AlarmWatch]:
    told: Told = []
    return told, AlarmWatch(lambda *event: told.append(event))


def test_an_alarm_is_told_once_and_its_end_once() -> None:
    told, watch = watching()
    hot = snapshot(host("h", device(throttle_reasons=("thermal",))), workers=(worker(),))
    look(range(0, 20, 2), hot, watch)
    kind = AlarmKind.THROTTLED
    assert told == [(Severity.WARNING, "h:gpu0", "alarm", "throttled: thermal", kind)]
    look(range(20, 40, 2), snapshot(host("h", device()), workers=(worker(),)), watch)
    assert told[1:] == [(Severity.INFO, "h:gpu0", "recovered", "no longer: throttled", kind)]


def test_a_condition_that_comes_and_goes_is_told_of_once() -> None:
    told, watch = watching()
    hot = snapshot(host("h", device(throttle_reasons=("thermal",))), workers=(worker(),))
    cool = snapshot(host("h", device()), workers=(worker(),))
    look(range(0, 10, 2), hot, watch)
    for second in range(10, 40, 4):
        look(range(second, second + 2), cool, watch)
        look(range(second + 2, second + 4), hot, watch)
    assert len(told) == 1


def test_another_persons_process_is_told_of_by_user_and_command() -> None:
    told, watch = watching()
    theirs = DeviceProcess(99, Owner.OTHER, "mira", "python train.py", 2**30)
    look(range(0, 10, 2), snapshot(host("h", device(processes=(theirs,)))), watch)
    assert told[0][3] == "used by others: mira: python train.py"


def test_what_a_worker_tells_itself_is_not_told_again() -> None:
    told, watch = watching()
    parked = worker(state=WorkerState.CRASH_LOOP)
    workers = (parked, worker(1))
    look(range(0, 10, 2), snapshot(host("h", device(0), device(1)), workers=workers), watch)
    assert not told


def test_a_silent_worker_is_an_alarm_with_its_reason_though_its_device_is_read() -> None:
    told, watch = watching()
    silent = worker(state=WorkerState.SILENT, reason="no heartbeat for 7 s", silent_for_s=7.0)
    look(range(0, 2, 2), snapshot(host("h", device()), workers=(silent,)), watch)
    text = "worker silent: h:gpu0: no heartbeat for 7 s"
    assert told == [(Severity.ERROR, "h:gpu0", "alarm", text, AlarmKind.WORKER_SILENT)]


def test_a_gpu_that_is_busy_at_idle_power_for_a_minute_is_told_of_and_why_names_it() -> None:
    told, watch = watching()
    spins = device(utilization_percent=100.0, power_w=100.0, idle_power_w=70.0)
    seen = snapshot(host("h", spins), workers=(worker(),))
    look(range(0, 60, 2), seen, watch)
    assert told == []
    look(range(60, 64, 2), seen, watch)
    text = "busy at idle power: 100 W, 100 %"
    assert told == [(Severity.ERROR, "h:gpu0", "alarm", text, AlarmKind.HANGS)]
    events = [Event(1, EPOCH + 60, *told[0])]
    now = replace(seen, taken_at=EPOCH + 300)
    (verdict,) = verdicts(Evidence(now, (), ExaminedScheduler(), tuple(events)))
    assert verdict.text == "h:gpu0 runs one kernel for 300 s at idle power"
    calm = Event(2, EPOCH + 300, *CALM)
    assert Evidence(now, (), ExaminedScheduler(), (*events, calm)).hanging == {}


def test_an_xid_is_told_of_in_nvidias_words_for_ten_minutes_and_why_names_it() -> None:
    told, watch = watching()
    hit = snapshot(host("h", device(xid=79, xid_at=EPOCH)), workers=(worker(),))
    look(range(0, 700, 100), hit, watch)
    said = [(severity, text) for severity, _, _, text, _ in told]
    assert said == [
        (Severity.ERROR, "Xid: 79, GPU has fallen off the bus"),
        (Severity.INFO, "no longer: Xid"),
    ]
    (verdict,) = verdicts(Evidence(hit, (), ExaminedScheduler()))
    assert verdict.text == "h:gpu0 had Xid 79, GPU has fallen off the bus"


IDLE_W, LIMIT_W = 119.0, 700.0
"""Of an H100, with a context."""
HANGS_FOR_S = 50
"""As long as the first step waits for its peers, and a checkpoint is copied by one small kernel."""


def an_hour_of(preset: str, hangs_for_s: int) -> Iterator[tuple[float, float]]:
    """Yield utilisation and power of each second: tasks, pauses for data, waits, checkpoints."""
    rng, second = random.Random(preset), 0
    stages = STAGES.get(preset, GENERIC)
    while second < 3600:
        seconds: list[tuple[float, float]] = []
        if second % 600 < 30:  # at its start, and with a checkpoint every ten minutes or so
            seconds += [(100.0, rng.uniform(0.0, 0.08)) for _ in range(hangs_for_s)]
        for stage in rng.choices(stages, [each.share for each in stages], k=12):
            busy = min(100.0, stage.utilization_percent + rng.uniform(-5, 5))
            work = rng.uniform(0.3, 0.92) * busy / 100
            seconds += [(busy, work)] * max(1, round(stage.task_s * rng.uniform(1, 9)))
            seconds += [(busy, rng.uniform(0.02, 0.1))]  # its power falls before its utilisation
            seconds += [(0.0, rng.uniform(0.0, 0.1))] * rng.randrange(7)
        yield from ((busy, IDLE_W + share * (LIMIT_W - IDLE_W)) for busy, share in seconds)
        second += len(seconds)


def alarms_of(preset: str, hangs_for_s: int = HANGS_FOR_S) -> set[AlarmKind]:
    alarms, raised = Alarms(), set()
    for second, (busy, power_w) in enumerate(an_hour_of(preset, hangs_for_s)):
        card = device(
            utilization_percent=busy, power_w=power_w, idle_power_w=IDLE_W, power_limit_w=LIMIT_W
        )
        seen = replace(snapshot(host("h", card), workers=(worker(),)), taken_at=EPOCH + second)
        alarms.look(seen, slots_of(seen))
        raised |= {alarm.kind for alarm in alarms}
    return raised


@pytest.mark.parametrize("preset", presets.names())
def test_an_hour_of_work_with_pauses_and_checkpoints_is_no_alarm(preset: str) -> None:
    assert alarms_of(preset) == set()
    assert alarms_of(preset, 70) == {AlarmKind.HANGS}


def test_a_gpu_that_works_or_was_never_seen_idle_is_no_alarm() -> None:
    told, watch = watching()
    works = device(utilization_percent=100.0, power_w=150.0, idle_power_w=70.0)
    unknown = device(1, utilization_percent=100.0, power_w=71.0)
    look(range(0, 200, 2), snapshot(host("h", works, unknown), workers=(worker(),)), watch)
    assert told == []
