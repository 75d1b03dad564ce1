"""What agents and the scheduler tell of workers, joined."""

from dataclasses import replace

import pytest

from gputui.fleet.worker_table import WorkerTable
from gputui.model.plan import WorkerSpec
from gputui.model.snapshot import WorkerState
from gputui.protocol.agent import WorkerExited, WorkerReading, WorkerReady, WorkerStarted
from gputui.protocol.scheduler import Counts, WorkerCounts
from tests.fleet.simulated import Head


def spec(name: str = "a:gpu0") -> WorkerSpec:
    return WorkerSpec(name, "a", "GPU-0", nthreads=1, memory_limit_bytes=2**30)


def counts(name: str, *, executing: int = 0, held: int = 0, status: str = "running") -> Counts:
    worker = WorkerCounts(name, status, executing, 0, 1, held, 0)
    return Counts((worker,), (), 0, 0, 0, 0)


def exited(name: str = "a:gpu0", **told: object) -> WorkerExited:
    usual = {"restart_in_s": None, "crash_loop": False, "kind": "crashed", "reason": "it fell"}
    return WorkerExited(name, **usual | told)


@pytest.fixture
def head() -> Head:
    return Head()


@pytest.fixture
def worker_table(head: Head) -> WorkerTable:
    """One worker that is up."""
    worker_table = WorkerTable({}, lambda host: "", **head.for_workers())
    worker_table.expect(spec(), sent=True)
    worker_table.started(WorkerStarted("a:gpu0", 7, 0))
    worker_table.ready(WorkerReady("a:gpu0", "tls://a:1", None))
    return worker_table


def state(worker_table: WorkerTable) -> WorkerState:
    return worker_table.statuses({})[0].state


def test_a_worker_is_busy_idle_or_paused_by_the_counts(worker_table: WorkerTable) -> None:
    for executing, status, seen in (
        (1, "running", WorkerState.BUSY),
        (0, "running", WorkerState.IDLE),
        (1, "paused", WorkerState.PAUSED),
    ):
        worker_table.count(counts("a:gpu0", executing=executing, status=status))
        assert state(worker_table) is seen


def test_a_second_report_with_the_device_is_not_another_start(
    worker_table: WorkerTable, head: Head
) -> None:
    worker_table.ready(WorkerReady("a:gpu0", "tls://a:1", "GPU-0"))
    assert [kind for _, _, kind, _ in head.events] == ["registered"]
    assert worker_table.statuses({})[0].seen_device_uuid == "GPU-0"


def test_a_crashed_worker_is_coming_until_it_is_parked(worker_table: WorkerTable) -> None:
    worker_table.exited(exited(restart_in_s=1.0))
    assert state(worker_table) is WorkerState.CRASHED and worker_table.coming
    worker_table.exited(exited(crash_loop=True))
    assert state(worker_table) is WorkerState.CRASH_LOOP and not worker_table.coming


def test_a_death_is_counted_before_the_next_process_is_started(worker_table: WorkerTable) -> None:
    worker_table.exited(exited(restart_in_s=60.0))
    assert worker_table.statuses({})[0].restarts == 1


def test_a_worker_that_was_lost_with_its_host_and_starts_again_was_restarted(
    worker_table: WorkerTable, head: Head
) -> None:
    worker_table.lose(("a:gpu0",), "its host has not been reached")
    worker_table.expect(spec(), sent=True)
    worker_table.started(WorkerStarted("a:gpu0", 9, 0))
    assert worker_table.statuses({})[0].restarts == 1
    assert [kind for _, _, kind, _ in head.events] == ["registered", "lost", "restarted"]
    worker_table.exited(exited(restart_in_s=1.0))
    worker_table.started(WorkerStarted("a:gpu0", 11, 1))
    assert worker_table.statuses({})[0].restarts == 2


def test_the_cheapest_to_give_up_is_the_idle_one_that_holds_least() -> None:
    worker_table = WorkerTable({}, lambda host: "", **Head().for_workers())
    names = ("a:gpu0", "a:gpu1", "a:gpu2", "a:gpu3")
    for name in names:
        worker_table.expect(spec(name), sent=True)
        worker_table.ready(WorkerReady(name, "tls://a:1", None))
    busy, full, light = (
        counts("a:gpu0", executing=1),
        counts("a:gpu1", held=500),
        counts("a:gpu2", held=5),
    )
    workers = (*busy.workers, *full.workers, *light.workers)
    worker_table.count(Counts(workers, (), 0, 0, 0, 0))
    assert worker_table.ranked == ("a:gpu3", "a:gpu2", "a:gpu1", "a:gpu0")


def test_a_worker_without_heartbeats_is_silent_whatever_it_was(worker_table: WorkerTable) -> None:
    (quiet,) = counts("a:gpu0", executing=1).workers
    worker_table.count(Counts((replace(quiet, silent_s=7.2),), (), 0, 0, 0, 0))
    (status,) = worker_table.statuses({})
    assert (status.state, status.silent_for_s) == (WorkerState.SILENT, 7.2)
    assert status.reason == "no heartbeat for 7 s"
    worker_table.count(counts("a:gpu0", executing=1))
    assert state(worker_table) is WorkerState.BUSY


def test_a_stopped_process_is_silent_at_once_and_says_what_lets_it_go_on(
    worker_table: WorkerTable,
) -> None:
    reading = WorkerReading("a:gpu0", cpu_percent=0.0, rss_bytes=1000, open_files=12, stopped=True)
    (status,) = worker_table.statuses({"a:gpu0": reading})
    assert status.state is WorkerState.SILENT and status.stopped
    assert (status.cpu_percent, status.rss_bytes, status.pid) == (0.0, 1000, 7)
    assert "kill -CONT 7 on a" in status.reason


def test_a_worker_that_has_not_registered_is_not_silent_but_starting() -> None:
    worker_table = WorkerTable({}, lambda host: "", **Head().for_workers())
    worker_table.expect(spec(), sent=True)
    reading = WorkerReading("a:gpu0", cpu_percent=0.0, rss_bytes=1000, open_files=12, stopped=True)
    assert worker_table.statuses({"a:gpu0": reading})[0].state is WorkerState.STARTING
