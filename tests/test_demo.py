"""The simulated cluster behaves as a real one would, and as its seed says."""

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from gputui.demo import DemoLink, Shape, Simulator
from gputui.demo.requests import answer, carry_out
from gputui.errors import HeadError, UsageError
from gputui.protocol.frontend import (
    Adapt,
    AddWorkers,
    Answer,
    Asked,
    CancelRun,
    Done,
    EventHappened,
    Previewed,
    Request,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    SnapshotTaken,
    StartRun,
    Stop,
    Stopped,
    SubscribeLogs,
    ToFrontend,
)
from gputui.protocol.shared import LogLines, Refused
from gputui.readings import Owner
from gputui.snapshot import HostState, RunState, SchedulerState, Snapshot, WorkerState

START = 1_000_000.0


def calm(size: str = "4x8", seed: int = 3) -> Simulator:
    """Return a cluster in which all is up after 15 s."""
    simulator = Simulator(Shape.parse(size), seed=seed, started_at=START, troubles=False)
    simulator.step(START + 15)
    return simulator


def test_the_same_seed_lives_the_same_life() -> None:
    lives = [Simulator(Shape(16, 4), seed=5, started_at=START) for _ in range(2)]
    first, second = [life.step(START + 200) for life in lives]
    assert first == second
    assert [e.text for e in lives[0].event_log.events] == [
        e.text for e in lives[1].event_log.events
    ]


def test_another_seed_lives_another_life() -> None:
    first, second = (Simulator(Shape(4, 4), seed=s, started_at=START) for s in (1, 2))
    assert first.step(START + 30) != second.step(START + 30)


def test_steps_of_any_length_come_to_the_same_tasks() -> None:
    at_once, often = calm(), calm()
    for tenth in range(1, 300):
        often.step(START + 15 + tenth / 10)
    last = at_once.step(START + 45)
    assert last.groups == often.step(START + 45).groups


def test_hosts_come_up_through_every_stage() -> None:
    simulator = Simulator(Shape(8, 4), seed=1, started_at=START)
    seen: set[HostState] = set()
    for tenth in range(150):
        snapshot = simulator.step(START + tenth / 10)
        seen |= {host.state for host in snapshot.hosts}
    assert seen >= {
        HostState.RESOLVING,
        HostState.CONNECTING,
        HostState.AUTHENTICATING,
        HostState.PROBING,
        HostState.REACHING,
        HostState.READY,
        HostState.REFUSED,
    }


def test_a_refused_host_says_where_why_and_what_to_do() -> None:
    snapshot = Simulator(Shape(16, 4), seed=1, started_at=START).step(START + 15)
    refused = [host for host in snapshot.hosts if host.state is HostState.REFUSED]
    assert refused
    assert all(h.failed_stage and h.reason and h.hint and h.stderr_tail for h in refused)


def test_a_host_that_mends_comes_up_when_it_is_tried_again() -> None:
    simulator = Simulator(Shape(16, 4), seed=1, started_at=START)
    before = _in_state(simulator.step(START + 15), HostState.REFUSED)
    carry_out(simulator, RetryHosts(1))
    after = _in_state(simulator.step(START + 40), HostState.REFUSED)
    assert set(after) < set(before)


@pytest.mark.parametrize(("text", "state"), [("yes", HostState.READY), (None, HostState.REFUSED)])
def test_a_host_with_an_unknown_key_waits_for_the_answer(
    text: str | None, state: HostState
) -> None:
    simulator = Simulator(Shape(4, 4), seed=1, started_at=START)
    simulator.step(START + 60)
    (question,) = simulator.event_log.questions.values()
    assert "SHA256:" in question.text
    answer(simulator, Answer(question.question, text))
    snapshot = simulator.step(START + 90)
    assert question.host in _in_state(snapshot, state)


def test_every_gpu_of_a_ready_host_has_a_worker() -> None:
    snapshot = calm("4x8").step(START + 16)
    assert snapshot.workers_up == 32
    assert {w.device_uuid for w in snapshot.workers} == {
        device.uuid for host in snapshot.hosts for device in host.devices
    }


def test_tasks_end_and_the_run_with_them() -> None:
    snapshot = calm().step(START + 130)
    assert snapshot.runs[0].state is RunState.DONE
    assert snapshot.runs[0].done == snapshot.runs[0].total
    assert snapshot.runs[0].result_json


def test_the_counts_of_a_group_add_up() -> None:
    for group in calm().step(START + 40).groups:
        assert group.waiting >= 0 and group.queued >= 0 and group.processing >= 0
        assert group.finished <= group.total


def test_a_gpu_that_works_is_warmer_and_draws_more_power() -> None:
    snapshot = calm().step(START + 40)
    device = snapshot.hosts[0].devices[0]
    assert (device.utilization_percent or 0) > 50
    assert (device.temperature_c or 0) > 45
    assert (device.power_w or 0) > 300


def test_scaling_down_to_a_number_retires_the_cheapest_and_says_so_first() -> None:
    simulator = calm()
    preview = carry_out(simulator, Scale(1, 20, preview=True))
    assert isinstance(preview, Previewed) and len(preview.stops) == 12
    assert carry_out(simulator, Scale(2, 20)) == Done(2, "0 start, 12 stop")
    left = {worker.name for worker in simulator.step(START + 25).workers}
    assert len(left) == 20 and left.isdisjoint(preview.stops)


def test_scaling_up_past_what_there_is_is_said_in_the_preview() -> None:
    preview = carry_out(calm(), Scale(1, 40, preview=True))
    assert isinstance(preview, Previewed)
    assert preview.text == "there are GPUs for 32 only"


def test_a_retired_worker_goes_and_can_be_added_again() -> None:
    simulator = calm()
    carry_out(simulator, RetireWorkers(1, ("node-01:gpu3",)))
    assert "node-01:gpu3" not in _workers(simulator.step(START + 20))
    carry_out(simulator, AddWorkers(2, ("node-01:gpu3",)))
    assert "node-01:gpu3" in _workers(simulator.step(START + 25))


def test_a_restarted_host_restarts_its_workers_only() -> None:
    simulator = calm()
    carry_out(simulator, Restart(1, ("node-02",)))
    snapshot = simulator.step(START + 25)
    assert {w.host for w in snapshot.workers if w.restarts} == {"node-02"}
    assert snapshot.workers_up == 32


def test_an_adaptive_cluster_shrinks_to_its_lower_bound_without_work() -> None:
    simulator = calm()
    simulator.step(START + 30)
    carry_out(simulator, Adapt(1, 4, 32))
    simulator.workload.end(simulator.workload.runs[0], RunState.CANCELLED, START + 30, "")
    numbers = [len(simulator.step(START + second).workers) for second in range(31, 37)]
    assert numbers[-1] < 32


def test_a_run_is_started_and_cancelled() -> None:
    simulator = calm()
    started = carry_out(simulator, StartRun(1, "svd", (("rows", "20000"),)))
    assert isinstance(started, Done)
    simulator.step(START + 20)
    assert carry_out(simulator, CancelRun(2, started.text)) == Done(2, "svd cancelled")
    states = {run.id: run.state for run in simulator.step(START + 21).runs}
    assert states[started.text] is RunState.CANCELLED


@pytest.mark.parametrize(
    "request_",
    [
        RetireWorkers(1, ("nobody:gpu0",)),
        Scale(1, 3, host="nobody"),
        StartRun(1, "no-such-preset", ()),
        StartRun(1, "svd", (("rows", "0"),)),
        CancelRun(1, "no-such-run"),
        Adapt(1, 5, 2),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(request_: Request) -> None:
    reply = carry_out(calm("1x2"), request_)
    assert isinstance(reply, Refused) and reply.reason


def test_every_alarm_can_be_seen_in_the_first_five_minutes() -> None:
    simulator = Simulator(Shape(16, 8), seed=2, started_at=START)
    last = simulator.step(START + 15)
    seen: set[str] = set()
    for second in range(16, 260):
        last = simulator.step(START + second)
        seen |= _alarms(last)
    assert seen >= {
        "foreign",
        "unknown",
        "throttled",
        "ecc",
        "lost",
        "wrong_device",
        "silent",
        "crashed",
        "busy",
    }
    assert last.workers_up > 100


def test_a_silent_host_keeps_its_last_values() -> None:
    simulator = Simulator(Shape(16, 8), seed=2, started_at=START)
    first = simulator.step(START + 72)
    (name,) = _in_state(first, HostState.SILENT)
    later = simulator.step(START + 76)
    hosts = [next(h for h in s.hosts if h.name == name) for s in (first, later)]
    assert hosts[0].read_at == hosts[1].read_at
    assert hosts[0].devices == hosts[1].devices


async def test_a_link_tells_events_and_snapshots_and_ends_with_stop() -> None:
    link = await DemoLink.open(Shape(2, 2), troubles=False)
    messages = link.messages()
    assert isinstance(await anext(messages), SnapshotTaken)
    await link.request(Stop(0))
    assert isinstance(await _first(messages, Stopped), Stopped)
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


async def test_log_lines_come_only_to_those_who_asked() -> None:
    now = START
    link = await DemoLink.open(Shape(2, 2), troubles=False, clock=lambda: now)
    now = START + 30
    messages = link.messages()
    kinds = [type(await anext(messages)) for _ in range(4)]
    assert LogLines not in kinds and EventHappened in kinds
    await link.send(SubscribeLogs(True))
    assert isinstance(await _first(messages, LogLines), LogLines)


async def test_a_frontend_that_attaches_later_is_told_what_happened_and_what_is_asked() -> None:
    simulator = Simulator(Shape(4, 2), seed=1, started_at=START)
    simulator.step(START + 20)
    link = DemoLink(simulator, lambda: START + 20)
    messages = link.messages()
    assert isinstance(await _first(messages, EventHappened), EventHappened)
    assert isinstance(await _first(messages, Asked), Asked)


async def test_a_refused_request_raises_with_the_reason() -> None:
    link = await DemoLink.open(Shape(1, 1), troubles=False)
    with pytest.raises(HeadError, match="no worker is up yet"):
        await link.request(StartRun(0, "svd", ()))


@pytest.mark.parametrize("text", ["", "8", "x8", "0x8", "8x", "-1x4", "9999x8", "4x65", "axb"])
def test_a_size_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--demo"):
        Shape.parse(text)


def test_the_demo_loads_neither_dask_nor_ssh_nor_the_screen() -> None:
    code = (
        "import sys, gputui.demo, gputui.demo.requests\n"
        "print([m for m in ('distributed', 'dask', 'asyncssh', 'textual', 'numpy')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def _first(messages: AsyncIterator[ToFrontend], kind: type) -> ToFrontend:
    async for message in messages:
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__} came")


def _in_state(snapshot: Snapshot, state: HostState) -> list[str]:
    return [host.name for host in snapshot.hosts if host.state is state]


def _workers(snapshot: Snapshot) -> set[str]:
    return {worker.name for worker in snapshot.workers}


def _alarms(snapshot: Snapshot) -> set[str]:
    devices = [device for host in snapshot.hosts for device in host.devices]
    owners = {process.owner for device in devices for process in device.processes}
    signs = {
        "foreign": Owner.OTHER in owners,
        "unknown": Owner.UNKNOWN in owners,
        "throttled": any(device.throttle_reasons for device in devices),
        "ecc": any(device.ecc_errors for device in devices),
        "lost": any(device.lost for device in devices),
        "wrong_device": any(
            w.seen_device_uuid not in (None, w.device_uuid) for w in snapshot.workers
        ),
        "silent": bool(_in_state(snapshot, HostState.SILENT)),
        "crashed": any(w.state is WorkerState.CRASHED for w in snapshot.workers),
        "busy": snapshot.scheduler.state is SchedulerState.BUSY,
    }
    return {name for name, seen in signs.items() if seen}
