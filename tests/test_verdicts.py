"""Verdicts on what no test makes with real workers: hosts out of reach, drivers, disks."""

from dataclasses import replace

import pytest

from gputui.model.examination import (
    ExaminedHost,
    ExaminedScheduler,
    ExaminedWorker,
    Fetch,
    ThreadStack,
    Transfers,
)
from gputui.model.snapshot import HostState, Snapshot, TaskGroupStatus, WorkerState
from gputui.model.verdicts import Evidence, Verdict, verdicts
from tests.tui.build import EPOCH, device, host, snapshot, worker

LOOP = ThreadStack(
    "MainThread", ("x/selectors.py:468 select", "asyncio/base_events.py:1884 _run_once")
)


def seen(on: Snapshot, *workers: ExaminedWorker, **more: object) -> tuple[Verdict, ...]:
    found = (replace(ExaminedHost("h", workers), **more),)
    return verdicts(Evidence(on, found, ExaminedScheduler(1, "S")))


def examined(number: int = 0, **more: object) -> ExaminedWorker:
    known = {"answered": True, "threads": (LOOP,), **more}
    return ExaminedWorker(f"h:gpu{number}", 7, **{"state": "S", **known})


def test_tasks_that_wait_for_a_silent_host_are_counted_and_the_host_is_named() -> None:
    away = host("far", device(host="far"), state=HostState.SILENT, reason="no message for 7 s")
    lost = worker(0, "far", state=WorkerState.SILENT, address="tls://far:1", silent_for_s=7.0)
    on = snapshot(host("h", device()), away, workers=(worker(), lost))
    found = seen(on, examined(transfers=Transfers((Fetch("tls://far:1", 2),), 12)))
    assert found[0].text == "12 tasks wait for a result of far:gpu0, which is silent"
    assert found[0].evidence == ("host far is silent: no message for 7 s",)


def test_a_driver_that_does_not_answer_is_named_before_the_worker_that_waits_for_it() -> None:
    on = snapshot(host("h", device(stale=True)), workers=(worker(),))
    waits = examined(state="D", answered=False, wait_channel="nvidia_ioctl")
    assert [each.text for each in seen(on, waits)] == [
        "the driver does not answer on h:gpu0",
        "worker h:gpu0 waits in the kernel for a disk or a device",
    ]


def test_an_event_loop_that_a_task_holds_up_is_told_from_the_gil() -> None:
    on = snapshot(host("h", device()), workers=(worker(),))
    blocked = replace(LOOP, frames=("mine.py:3 load", *LOOP.frames[1:]))
    (verdict,) = seen(on, examined(answered=False, threads=(blocked,)))
    assert verdict.text == "worker h:gpu0: mine.py:3 load holds up its event loop"
    holder = ThreadStack("Dask-0", ("libfoo.py:8 call",), has_gil=True)
    (verdict,) = seen(on, examined(answered=False, threads=(LOOP, holder)))
    assert verdict.text == "worker h:gpu0 holds the GIL in libfoo.py:8 call"


def test_full_disks_and_pressure_on_memory_are_named_with_their_host() -> None:
    on = snapshot(host("h", device()), workers=(worker(),))
    found = seen(on, examined(), full_disks=("home (/home)",), memory_stall_percent=40.0)
    assert [each.cause for each in found] == ["disk-full", "memory-pressure"]


@pytest.mark.parametrize("percent", [None, 0.0, 5.0])
def test_a_healthy_cluster_that_works_is_accused_of_nothing(percent: float | None) -> None:
    at_work = worker(state=WorkerState.BUSY, current_task="f", task_since=EPOCH - 90)
    group = TaskGroupStatus("f", "f", processing=3, executing=1)
    on = replace(snapshot(host("h", device()), workers=(at_work,)), groups=(group,))
    computes = ThreadStack("Dask-0", ("mine.py:3 f",), "f-1")
    (verdict,) = seen(on, examined(threads=(LOOP, computes)), memory_stall_percent=percent)
    assert verdict.text == "nothing is stuck: 1 of 3 tasks run on 1 workers"
