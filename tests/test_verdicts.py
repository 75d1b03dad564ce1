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
from gputui.model.snapshot import (
    ClusterState,
    HostState,
    RunState,
    RunStatus,
    Snapshot,
    TaskGroupStatus,
    WorkerState,
)
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


def test_a_cluster_without_workers_says_which_gpus_it_waits_for() -> None:
    lacking = "too few free GPUs: 1 asked for, 0 free\n  h gpu0: alice · since 3h"
    (verdict,) = seen(replace(snapshot(host("h", device())), lacking=lacking))
    assert verdict.text == "no worker is up"
    assert verdict.evidence == (lacking.partition("\n")[0], "h gpu0: alice · since 3h")


def test_where_no_worker_is_wanted_the_runs_of_programs_are_named() -> None:
    on = replace(snapshot(host("h", device())), state=ClusterState.WATCHING)
    watched = "nothing: no worker is wanted here, the hosts are only watched"
    assert [each.text for each in seen(on)] == [watched]
    program = RunStatus("lab-exec-1", "exec:x", (), RunState.RUNNING, EPOCH, stage="running")
    (verdict,) = seen(replace(on, runs=(program, replace(program, state=RunState.DONE))))
    assert verdict.text == "lab-exec-1: running"


def test_tasks_that_wait_for_a_silent_host_are_counted_and_the_host_is_named() -> None:
    away = host("far", device(host="far"), state=HostState.SILENT, reason="no message for 7 s")
    lost = worker(0, "far", state=WorkerState.SILENT, address="tls://far:1", silent_for_s=7.0)
    on = snapshot(host("h", device()), away, workers=(worker(), lost))
    found = seen(on, examined(transfers=Transfers((Fetch("tls://far:1", 2),), 12)))
    assert found[0].text == "12 tasks wait for a result of far:gpu0, which is silent"
    assert found[0].evidence == ("host far is silent: no message for 7 s",)


def test_a_silent_worker_whose_results_nobody_waits_for_is_named_with_its_tasks() -> None:
    lost = worker(state=WorkerState.SILENT, executing=1)
    found = seen(snapshot(host("h", device()), workers=(lost,)))
    assert "h:gpu0 has 1 task and does not answer" in [each.text for each in found]


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
    full = {"full_disks": ("home (/home)",), "tasks_full": "99 of 100"}
    found = seen(on, examined(), memory_stall_percent=40.0, **full)
    assert [each.cause for each in found] == ["tasks", "disk-full", "memory-pressure"]


@pytest.mark.parametrize("percent", [None, 0.0, 5.0])
def test_a_healthy_cluster_that_works_is_accused_of_nothing(percent: float | None) -> None:
    at_work = worker(state=WorkerState.BUSY, current_task="f", task_since=EPOCH - 90)
    group = TaskGroupStatus("f", "f", processing=3, executing=1)
    on = replace(snapshot(host("h", device()), workers=(at_work,)), groups=(group,))
    computes = ThreadStack("Dask-0", ("mine.py:3 f",), "f-1")
    (verdict,) = seen(on, examined(threads=(LOOP, computes)), memory_stall_percent=percent)
    assert verdict.text == "nothing is stuck: 1 of 3 tasks run on 1 worker"


def task(*frames: str, waits: str = "") -> ThreadStack:
    return ThreadStack("Dask-0", frames, "f-1", number=9, waits=waits)


READS = task("python3.11/pathlib.py:3 open", "mine.py:3 f", waits="reads from a pipe")
SUBMITS = task("threading.py:3 wait", "distributed/client.py:7 result", "mine.py:3 f")
FAR = "tls://[fd00::7]:99"


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ({"threads": (LOOP, READS)}, "1 task waits at mine.py:3 f: reads from a pipe"),
        (
            {"threads": (LOOP, SUBMITS)},
            "1 task waits for tasks that it submitted, and no thread is free for those: "
            "use worker_client() or secede()",
        ),
        (
            {"state": "t", "problem": "gdb (pid 3) traces and holds it"},
            "worker h:gpu0 is held by a debugger: gdb (pid 3) traces and holds it; it runs f",
        ),
        (
            {"most_files": 1024},
            "worker h:gpu0 has 1,020 of 1,024 file descriptors open: "
            "close files, or raise ulimit -n on its host",
        ),
    ],
)
def test_what_a_task_or_its_worker_waits_for_is_named(of: dict[str, object], text: str) -> None:
    at_work = worker(state=WorkerState.BUSY, current_task="f", task_since=EPOCH - 90)
    on = snapshot(host("h", device(utilization_percent=0)), workers=(at_work,))
    on = replace(on, workers=tuple(replace(each, open_files=1020) for each in on.workers))
    assert seen(on, examined(**of))[0].text == text


def test_a_task_that_waits_is_accused_of_nothing_while_its_gpu_works_or_it_has_just_begun() -> None:
    for load, for_s in ((90.0, 90.0), (None, 90.0), (0.0, 9.0)):
        begun = worker(state=WorkerState.BUSY, current_task="f", task_since=EPOCH - for_s)
        on = snapshot(host("h", device(utilization_percent=load)), workers=(begun,))
        group = TaskGroupStatus("f", "f", processing=3, executing=1)
        (verdict,) = seen(replace(on, groups=(group,)), examined(threads=(LOOP, READS)))
        assert verdict.cause == "working", (load, for_s)


def test_a_worker_that_a_host_does_not_reach_is_named_with_both() -> None:
    on = snapshot(host("h", device()), workers=(worker(), worker(0, "far", address=FAR)))
    waits = examined(transfers=Transfers((Fetch(FAR, 2),), 5))
    (verdict,) = seen(on, waits, unreached=("10.0.0.3:22", "[fd00::7]:99"))
    assert verdict.text == "5 tasks wait for a result of far:gpu0, which h does not reach"
    assert verdict.evidence == (f"h:gpu0: {FAR} does not answer",)
