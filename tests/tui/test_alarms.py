"""Alarms: raised when a condition lasts, cleared when it is over for a while."""

from dataclasses import replace

import pytest

from gputui.model.alarms import AlarmKind, Alarms
from gputui.model.readings import DeviceProcess, Owner
from gputui.model.slots import slots_of
from gputui.model.snapshot import (
    ClusterState,
    HostState,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    WorkerState,
)
from gputui.tui.rendering import whole_fields
from gputui.tui.watched import Watched
from gputui.tui.widgets.bars import status_line, trouble_lines
from tests.tui.build import EPOCH, GIB, device, host, snapshot, texts, worker
from tests.tui.still import Still

TWO = host("h", device(0), device(1))
SILENT, WRONG = HostState.SILENT, AlarmKind.WRONG_DEVICE


def kinds(alarms: Alarms, *snapshots: Snapshot) -> list[AlarmKind]:
    for one in snapshots:
        alarms.look(one, slots_of(one))
    return [alarm.kind for alarm in alarms]


def idle(at: float, queued: int = 5) -> Snapshot:
    return snapshot(host("h", device()), workers=(worker(),), queued=queued, at=EPOCH + at)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ((idle(0), idle(9)), []),
        ((idle(0), idle(9), idle(10)), [AlarmKind.IDLE]),
        ((idle(0, queued=0), idle(60, queued=0)), []),
        ((idle(0), idle(10), idle(14, queued=0)), [AlarmKind.IDLE]),
        ((idle(0), idle(10), idle(14, queued=0), idle(16, queued=0)), []),
        ((snapshot(TWO, workers=(worker(0, seen_device_uuid="GPU-h-1"),)),), [WRONG]),
        ((snapshot(host("h", device(ecc_errors=3), state=SILENT)),), [AlarmKind.SILENT]),
    ],
    ids=[
        "idle for less than ten seconds",
        "idle for ten seconds",
        "idle without queued tasks",
        "idle until some seconds ago",
        "no longer idle",
        "a worker on another GPU than it was pinned to",
        "of a silent host the silence alone",
    ],
)
def test_an_alarm_is_raised(seen: tuple[Snapshot, ...], found: list[AlarmKind]) -> None:
    alarms = Alarms()
    for one in seen:
        now = kinds(alarms, one)
    assert now == found


def test_what_is_broken_comes_first() -> None:
    stranger = DeviceProcess(7, Owner.OTHER, "eve", "train.py", GIB)
    shared = host("a", device(0, "a", processes=(stranger,)))
    lost = host("b", device(0, "b", lost=True))
    alarms = Alarms()
    found = kinds(alarms, *(snapshot(shared, lost, at=EPOCH + at) for at in (0, 5)))
    assert found == [AlarmKind.LOST, AlarmKind.FOREIGN]


@pytest.mark.parametrize(("width", "first"), [(60, "lab"), (80, "gputui lab")])
def test_a_narrow_status_line_gives_up_counts_before_alarms(width: int, first: str) -> None:
    hosts = [host(f"h{number}", device(ecc_errors=1)) for number in range(200)]
    watched = Watched()
    watched.take(snapshot(*hosts, simulated=width == 60))
    line = whole_fields(status_line(watched, width, paused=False, readonly=False), width)
    text = "".join(part for part, _ in line)
    assert text.startswith(first)
    assert "!200 alarms" in text


@pytest.mark.parametrize(
    "name", ["training-run-of-the-vision-model-of-the-lab" * 2, "日本語クラスター" * 5]
)
def test_a_long_name_gives_way_to_state_and_alarms(name: str) -> None:
    watched = Watched()
    watched.take(snapshot(host("h", device(ecc_errors=1)), name=name))
    line = whole_fields(status_line(watched, 80, paused=True, readonly=True), 80)
    text = "".join(part for part, _ in line)
    assert name[:9] in text
    assert "…" in text
    assert "running" in text
    assert "!1 alarm" in text


def status(seen: Snapshot) -> list[tuple[str, str]]:
    watched = Watched()
    watched.take(seen)
    return list(status_line(watched, 200, paused=False, readonly=False))


def test_a_cluster_whose_workers_are_all_dead_is_never_green() -> None:
    dead = tuple(worker(number, state=WorkerState.CRASHED) for number in range(4))
    here = snapshot(host("h", *(device(number) for number in range(4))), workers=dead)
    assert ("  ✖ no workers", "bad") in status(here)
    assert "good" not in dict(status(here)).values()
    later = replace(here, taken_at=EPOCH + 5)
    assert AlarmKind.NO_WORKERS in kinds(Alarms(), here, later)


def test_workers_that_start_for_the_first_time_are_no_alarm_yet_not_green_either() -> None:
    starting = tuple(worker(number, state=WorkerState.STARTING) for number in range(2))
    here = snapshot(host("h", device(0), device(1)), workers=starting)
    assert kinds(Alarms(), here, replace(here, taken_at=EPOCH + 9)) == []
    assert ("  ● running", "") in status(here)
    again = replace(here, workers=tuple(replace(each, restarts=1) for each in starting))
    found = kinds(Alarms(), again, replace(again, taken_at=EPOCH + 9))
    assert found == [AlarmKind.NO_WORKERS]


def test_a_scheduler_that_died_comes_before_the_workers_that_it_took_along() -> None:
    crashed = worker(state=WorkerState.CRASHED, reason="it was closed by the scheduler")
    here = snapshot(host("h", device()), workers=(crashed,))
    again = replace(here, scheduler=SchedulerStatus(SchedulerState.STARTING))
    watched = Watched()
    watched.take(again)
    first, second = texts(trouble_lines(watched, 100, 2))
    assert first.startswith(" ✖ scheduler  scheduler lost")
    assert second.startswith(" ✖ h:gpu0  worker crashed")
    assert kinds(Alarms(), replace(again, state=ClusterState.STARTING)) == [AlarmKind.CRASHED]


def test_a_cluster_with_a_failed_host_is_not_green() -> None:
    failed = host("b", state=HostState.FAILED)
    found = status(snapshot(host("a", device(0, "a")), failed, workers=(worker(0, "a"),)))
    assert ("  ● running", "") in found


def test_trouble_is_said_under_the_status_worst_first_with_what_to_press() -> None:
    failed = [
        host(f"b{n}", state=HostState.FAILED, reason="connection refused on port 22")
        for n in range(3)
    ]
    hot = host("a", device(0, "a", throttle_reasons=("thermal",), sm_clock_mhz=1267.0))
    watched = Watched()
    for sequence, at in enumerate((0, 6)):
        seen = snapshot(hot, *failed, workers=(worker(0, "a"),), at=EPOCH + at)
        watched.take(replace(seen, sequence=sequence + 1))
    first, second = texts(trouble_lines(watched, 100, 3))
    assert first.startswith(" ✖ b0 and 2 more  host failed: connection refused on port 22")
    assert first.endswith("r retries")
    assert second.startswith(" ▲ a:gpu0  throttled to 1267 MHz for 6s")
    assert texts(trouble_lines(watched, 100, 1))[0].endswith("+1 more  ! lists all")


NAME = "a-very-long-host-name-of-a-cluster.example.invalid"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (f"{NAME} does not resolve: not known", "does not resolve"),
        (f"{NAME}:22 refuses the connection", ":22 refuses the"),
    ],
)
async def test_a_long_name_leaves_room_for_the_cause_of_its_failure(reason: str, said: str) -> None:
    failed = [
        host(name, state=HostState.FAILED, reason=reason.replace(NAME, name))
        for name in (NAME, "b", "c")
    ]
    async with Still(snapshot(host("a", device()), *failed)).showing("a-very", keys="1") as on:
        await on.sees(f"✖ {NAME[:23]}… and 2 more  {said}", f"  b  {said}")
        assert on.text.count(said) == 4 and NAME not in on.text
        await on.press("0", f"  {said}", f"✖ {NAME}")  # there the whole of it stands below
        assert on.text.count(f"0s {said}") == 3


def test_trouble_that_is_over_is_not_said_to_last() -> None:
    watched = Watched()
    for at, state in enumerate((WorkerState.SILENT, WorkerState.SILENT, WorkerState.IDLE)):
        seen = snapshot(host("h", device()), workers=(worker(state=state),), at=EPOCH + 2 * at)
        watched.take(replace(seen, sequence=at + 1))
        (line,) = texts(trouble_lines(watched, 100, 3))
        assert ("for 2s" in line) == (at == 1) and ("until 2s ago" in line) == (at == 2)
