"""The demo is a real head on simulated hosts: it behaves as every cluster, and as its seed says."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.demo.cluster import Demo
from gputui.errors import HeadError
from gputui.model.snapshot import HostState, RunState, Snapshot, WorkerState
from gputui.protocol.frontend import (
    AddWorkers,
    CancelRun,
    Done,
    Previewed,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    SnapshotTaken,
    StartRun,
)
from gputui.protocol.shared import FollowLogs, LogLines
from tests.timelapse import Timelapse

STARTED = 20.0
"""Seconds after which every host has come to an end of its start."""


@pytest.fixture
def calm() -> Iterator[Timelapse]:
    """Return a cluster in which all is up."""
    one = Timelapse((2, 4), seed=3, troubles=False, pace=0.0)
    one.until(lambda snapshot: snapshot.workers_up == 8)
    yield one
    one.close()


@pytest.fixture
def troubled() -> Iterator[Timelapse]:
    """Return a cluster of which some hosts are refused."""
    one = Timelapse((16, 1), seed=1)
    yield one
    one.close()


def in_state(snapshot: Snapshot, state: HostState) -> set[str]:
    return {host.name for host in snapshot.hosts if host.state is state}


def names(snapshot: Snapshot) -> set[str]:
    return {worker.name for worker in snapshot.workers}


def life(seed: int) -> list[tuple[str, ...]]:
    one = Timelapse((8, 2), seed=seed).to(30)
    one.close()
    return [(str(e.at), e.subject, e.kind, e.text) for e in one.events if "run" not in e.subject]


def test_the_same_seed_lives_the_same_life_and_another_one_does_not() -> None:
    first = life(5)
    assert first == life(5)
    assert first != life(6)


def test_hosts_come_up_through_every_stage(troubled: Timelapse) -> None:
    troubled.to(STARTED)
    snapshots = [m.snapshot for m in troubled.messages if isinstance(m, SnapshotTaken)]
    assert {host.state for snapshot in snapshots for host in snapshot.hosts} >= {
        HostState.RESOLVING,
        HostState.CONNECTING,
        HostState.AUTHENTICATING,
        HostState.PROBING,
        HostState.CHECKING,
        HostState.READY,
        HostState.FAILED,
    }
    assert snapshots[-1].simulated


def test_a_refused_host_says_where_why_and_what_to_do_and_one_that_mends_comes_up(
    troubled: Timelapse,
) -> None:
    snapshot = troubled.to(STARTED).snapshot
    refused = [host for host in snapshot.hosts if host.state is HostState.FAILED]
    assert len(refused) == 2
    assert all(host.failed_stage and host.reason and host.hint for host in refused)
    assert all(host.stderr_tail for host in refused)
    troubled.request(RetryHosts(0))
    troubled.until(lambda snapshot: len(in_state(snapshot, HostState.FAILED)) == 1)


def test_every_way_to_be_refused_is_one_that_the_fleet_knows() -> None:
    one = Timelapse((160, 1), seed=1)
    snapshot = one.until(lambda snapshot: len(in_state(snapshot, HostState.FAILED)) == 4)
    assert {host.failed_stage for host in snapshot.hosts} - {""} == {
        "connecting",
        "authenticating",
        "probing",
        "checking",
    }
    one.close()


def test_some_gpus_are_other_peoples_and_get_no_worker() -> None:
    one = Timelapse((4, 4), seed=3).to(STARTED)
    (host,) = (host for host in one.snapshot.hosts if any(d.claim for d in host.devices))
    claimed = {device.short_name: device.claim.user for device in host.devices if device.claim}
    assert claimed == {"gpu1": "mira", "gpu2": "jon"}
    assert not {f"{host.name}:{name}" for name in claimed} & names(one.snapshot)
    one.close()


def test_runs_follow_each_other_and_their_tasks_load_the_gpus(calm: Timelapse) -> None:
    working = calm.until(
        lambda s: all(
            (d.utilization_percent or 0) > 50
            and (d.temperature_c or 0) > 45
            and (d.power_w or 0) > 300
            for host in s.hosts
            for d in host.devices
        )
    )
    assert working.runs[0].done and working.spans
    for group in working.groups:
        assert group.waiting >= 0 and group.queued >= 0 and group.processing >= 0
        assert group.finished <= group.total
    running = sum(worker.executing or 0 for worker in working.workers)
    assert sum(group.executing for group in working.groups) == running > 0
    calm.until(lambda s: any(worker.in_memory for worker in s.workers))
    preview = calm.request(Scale(0, 0, preview=True))
    moved = r"moved to other workers first: (1 result|\d+ results) \(\d\S*\)"
    assert isinstance(preview, Previewed) and re.fullmatch(moved, preview.text)
    ended = calm.until(lambda s: s.runs[0].state is RunState.DONE, 120)
    assert ended.runs[0].done == ended.runs[0].total and ended.runs[0].result_json
    calm.until(lambda s: len(s.runs) == 2)


def test_scaling_down_says_first_what_it_stops_and_a_retired_worker_comes_back(
    calm: Timelapse,
) -> None:
    preview = calm.request(Scale(0, 5, preview=True))
    assert isinstance(preview, Previewed) and len(preview.stops) == 3
    assert isinstance(calm.request(Scale(0, 5)), Done)
    left = calm.until(lambda snapshot: len(snapshot.workers) == 5)
    assert names(left).isdisjoint(preview.stops)
    calm.request(RetireWorkers(0, (min(names(left)),)))
    calm.until(lambda snapshot: len(snapshot.workers) == 4)
    calm.request(AddWorkers(0, (min(names(left)),)))
    assert min(names(left)) in names(calm.until(lambda snapshot: snapshot.workers_up == 5))


def test_a_restarted_host_restarts_its_workers_only(calm: Timelapse) -> None:
    calm.request(Restart(0, ("node-02",)))
    restarted = {"cluster", *(f"node-02:gpu{number}" for number in range(4))}
    calm.until(lambda _: {e.subject for e in calm.events if e.kind == "restarted"} == restarted)
    calm.until(lambda s: s.workers_up == 8)


def test_a_run_is_started_and_cancelled(calm: Timelapse) -> None:
    started = calm.request(StartRun(0, "svd", (("rows", "20000"),)))
    assert isinstance(started, Done)
    calm.until(lambda snapshot: any(run.done for run in snapshot.runs))
    calm.request(CancelRun(0, started.text))
    ended = calm.until(lambda snapshot: all(run.state.ended for run in snapshot.runs))
    assert {run.id: run.state for run in ended.runs}[started.text] is RunState.CANCELLED


@pytest.mark.slow
def test_every_alarm_can_be_seen_in_the_first_five_minutes() -> None:
    one = Timelapse((16, 2), seed=2).to(260)
    seen = {event.text.partition(":")[0] for event in one.events if event.kind == "alarm"}
    assert seen >= {"used by others", "wrong GPU", "throttled", "ECC errors", "GPU lost"}
    kinds = {event.kind for event in one.events}
    assert kinds >= {"silent", "reconnecting", "crashed", "restarted", "busy"}
    assert "lost" not in kinds, "the host came back after its lease"
    assert one.snapshot and one.snapshot.workers_up > 24
    failed = [run for run in one.snapshot.runs if run.state is RunState.FAILED]
    assert failed and failed[0].failure.type == "OutOfMemoryError"
    parked = [w for w in one.snapshot.workers if w.state is WorkerState.CRASH_LOOP]
    assert "Xid" in parked[0].reason
    one.close()


def test_a_run_that_cannot_be_is_refused_with_a_reason(calm: Timelapse) -> None:
    for preset, parameters in (("no-such-preset", ()), ("svd", (("rows", "0"),))):
        with pytest.raises(HeadError, match=r"no-such-preset|rows"):
            calm.request(StartRun(1, preset, parameters))


def test_log_lines_come_only_to_those_who_asked(calm: Timelapse) -> None:
    calm.until(lambda snapshot: any(run.done for run in snapshot.runs))
    assert not any(isinstance(message, LogLines) for message in calm.messages)
    calm.link.send(FollowLogs(True))
    calm.until(lambda _: any(isinstance(message, LogLines) for message in calm.messages))


async def test_it_ends_with_its_link_and_leaves_no_file_and_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    before = asyncio.all_tasks()
    link = await Demo((4, 2), pace=0.0).open()
    async for message in link.messages():
        if isinstance(message, SnapshotTaken) and message.snapshot.workers_up:
            break
    await link.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.is_socket()]
    assert asyncio.all_tasks() == before
