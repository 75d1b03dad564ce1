"""A head with real workers of this machine, as its frontends see it."""

import asyncio
import json
import os
import re
import signal
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client

from gputui.client.head_connection import HeadConnection, security
from gputui.errors import HeadError
from gputui.head.head import DETACHED_S, WATCHING_S, Head
from gputui.model.readings import Owner
from gputui.model.snapshot import ClusterState, HostState, SchedulerState, WorkerState
from gputui.protocol.connection_file import find_cluster, running_clusters
from gputui.protocol.frontend import (
    AddWorkers,
    AwaitWorkers,
    ChangeHosts,
    RetireWorkers,
    RetryHosts,
    Scale,
    SnapshotTaken,
    Stop,
)
from gputui.protocol.shared import FollowLogs
from gputui.protocol.starter import SCREEN_IDLE_S
from tests.agent.conftest import FakeNvml
from tests.clusters import Clusters, LiveCluster
from tests.processes import nothing_left


def client_of(cluster: LiveCluster) -> Client:
    link = cluster.link
    return Client(link.address, security=security(link), asynchronous=True)


async def test_what_hosts_warn_of_is_told_before_the_workers_are(standing: LiveCluster) -> None:
    heard: list[object] = []
    standing.link.heard = heard.append
    await standing.request(AwaitWorkers(0, 2))
    standing.link.heard = None
    assert any(isinstance(each, SnapshotTaken) for each in heard)


@pytest.mark.slow
async def test_everyone_attached_is_known_and_hears_who_stopped_it_and_nothing_is_left(
    clusters: Clusters, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await clusters.start(up=2)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 4000 10.0.0.1 22")
    other = await clusters.attach(cluster.head, cluster.socket)
    await cluster.until(lambda: cluster.snapshot and len(cluster.snapshot.sessions) == 2)
    first, second = cluster.snapshot.sessions
    assert (first.client, second.client) == ("", "10.0.0.9")
    assert first.pid == os.getpid() and first.user and first.attached_at <= second.attached_at
    await other.request(Stop(0))
    await cluster.until(lambda: cluster.stopped)
    assert cluster.stopped and "ssh from 10.0.0.9" in cluster.stopped.reason
    await nothing_left(cluster.id)
    assert not list(runtime.glob("gputui/*.sock")) + list(runtime.glob("gputui/*.json"))


async def test_a_frontend_on_a_gpu_is_the_clusters_own_and_another_process_is_not(
    clusters: Clusters, nvml: FakeNvml
) -> None:
    """As a script that opened a CUDA context before it started a cluster, or while it has one."""
    nvml.set(gpus=[{"processes": [{"pid": os.getpid()}, {"pid": os.getppid()}]}])
    cluster = await clusters.start()

    def owners() -> list[Owner]:
        devices = cluster.snapshot.hosts[0].devices if cluster.snapshot else ()
        return [process.owner for device in devices for process in device.processes]

    # The agent learns of those that attach after its first reading.
    await cluster.until(lambda: owners() == [Owner.OURS, Owner.OTHER])


async def test_an_unused_cluster_that_stays_ends_after_its_timeout(clusters: Clusters) -> None:
    cluster = await clusters.start(stays=True, idle_timeout_s=0.5)
    await cluster.link.close()
    await nothing_left(cluster.id)
    assert running_clusters() == ()


@pytest.mark.parametrize(
    ("state", "values", "limit_s"),
    [
        (ClusterState.WATCHING, {"ends_with_screens": True, "idle_timeout_s": 3600.0}, WATCHING_S),
        (ClusterState.WATCHING, {}, DETACHED_S),
        (ClusterState.WATCHING, {"idle_timeout_s": 7200.0}, 7200.0),
        (ClusterState.RUNNING, {}, SCREEN_IDLE_S),
        (ClusterState.RUNNING, {"watch": False}, None),
    ],
)
def test_workers_of_a_screen_outlive_the_program_that_the_head_was_started_for(
    state: ClusterState, values: dict[str, Any], limit_s: float | None
) -> None:
    config = SimpleNamespace(**{"idle_timeout_s": None, "watch": True, **values})
    head = SimpleNamespace(
        state=state, ends_with_screens=values.get("ends_with_screens"), config=config
    )
    assert Head.idle_limit_s.fget(head) == limit_s  # type: ignore[attr-defined]


async def test_a_cluster_that_dask_ends_when_idle_names_the_setting(clusters: Clusters) -> None:
    config = '{"distributed": {"scheduler": {"idle-timeout": "1s"}}}'
    cluster = await clusters.start(stays=True, frontend="run", dask_config_json=config)
    await cluster.until(lambda: cluster.stopped)
    assert cluster.stopped and "distributed.scheduler.idle-timeout" in cluster.stopped.reason


async def test_an_unknown_host_is_refused_by_name(standing: LiveCluster) -> None:
    with pytest.raises(HeadError, match="no host elsewhere"):
        await standing.request(RetryHosts(0, ("elsewhere",)))


async def test_the_connection_file_tells_no_secret(standing: LiveCluster) -> None:
    connection_file = find_cluster("standing")
    assert (
        connection_file
        and connection_file.pid == standing.head.pid
        and connection_file.address.startswith("tls://")
    )
    path = Path(standing.socket).with_name("standing.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(standing.socket).stat().st_mode) == 0o600
    assert "PRIVATE" not in path.read_text()
    log = path.with_name("log") / "standing.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "PRIVATE" not in log.read_text()


async def test_a_frontend_of_another_version_is_turned_away_in_words(standing: LiveCluster) -> None:
    reader, writer = await asyncio.open_unix_connection(standing.socket)
    writer.write(json.dumps(["Attach", 99, "screen", True, "new"]).encode() + b"\n")
    assert b"speaks version" in await reader.readline()
    writer.close()


async def test_the_last_worker_is_kept_for_what_it_holds(standing: LiveCluster) -> None:
    async with client_of(standing) as client:
        future = client.submit(sum, [1, 2])
        await future
        await standing.request(Scale(0, 0))
        await standing.until(lambda: any(event.kind == "kept" for event in standing.events))
        assert await future == 3


async def test_a_worker_retired_by_name_stays_away_until_it_is_added(standing: LiveCluster) -> None:
    await standing.request(RetireWorkers(0, ("localhost:cpu0",)))
    await standing.until(lambda: list(standing.workers) == ["localhost:cpu1"])
    await standing.request(AddWorkers(0, ("localhost:cpu0",)))
    await standing.until(lambda: standing.snapshot and standing.snapshot.workers_up == 2)


async def test_a_cluster_on_loopback_refuses_another_machine(standing: LiveCluster) -> None:
    with pytest.raises(HeadError, match="listens on loopback only"):
        await standing.request(ChangeHosts(0, "gpu-a"))


@pytest.mark.slow
async def test_a_stalled_scheduler_stalls_nothing_else(clusters: Clusters, tmp_path: Path) -> None:
    cluster = await clusters.start(lease_s=2.0, up=2)
    over = tmp_path / "over"

    def stall() -> None:
        while not over.exists():
            time.sleep(0.05)

    async with client_of(cluster) as client:
        stalled = asyncio.ensure_future(client.run_on_scheduler(stall))
        await cluster.until(lambda: cluster.snapshot.scheduler.state is SchedulerState.BUSY)
        read_at = cluster.snapshot.hosts[0].read_at
        await cluster.until(lambda: cluster.snapshot.hosts[0].read_at > read_at + 3.0)
        await cluster.until(lambda: cluster.snapshot.scheduler.busy_s > 3.0)
        assert cluster.snapshot.hosts[0].state is HostState.READY
        over.touch()
        await stalled
    await cluster.until(lambda: cluster.snapshot.scheduler.state is SchedulerState.RUNNING)
    assert cluster.snapshot.workers_up == 2
    said = [event.text for event in cluster.events if event.kind == "busy"]
    assert said and re.fullmatch(r"its loop did not answer for [\d.]+ s", said[0])


@pytest.mark.slow
async def test_a_cluster_that_stays_outlives_its_starter_and_its_scheduler(
    clusters: Clusters,
) -> None:
    started = await clusters.start(stays=True, up=2)
    started.head.keep()
    await started.link.close()
    cluster = await clusters.attach(started.head, started.socket)
    await cluster.up(2)
    assert cluster.events[0].sequence == 1
    pid = cluster.snapshot.scheduler.pid
    os.kill(pid, signal.SIGKILL)
    await cluster.until(lambda: cluster.snapshot.scheduler.pid not in (pid, None))
    await cluster.up(2)
    async with client_of(cluster) as client:
        assert await client.submit(sum, [1, 2]) == 3


async def test_what_workers_print_reaches_every_frontend_that_follows(
    standing: LiveCluster,
) -> None:
    standing.link.send(FollowLogs(True))
    async with client_of(standing) as client:
        await client.submit(print, "hello from a task")
        await standing.until(lambda: any("hello from a task" in n.lines for n in standing.logs))


async def test_a_link_to_no_head_says_so() -> None:
    with pytest.raises(HeadError, match="no head answers"):
        await HeadConnection.open("/nonexistent.sock", frontend="screen")


@pytest.mark.slow
async def test_a_stopped_worker_is_silent_within_ten_seconds_and_goes_on(
    standing: LiveCluster,
) -> None:
    pid = standing.workers["localhost:cpu0"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await standing.until(
            lambda: (
                standing.workers["localhost:cpu0"].state is WorkerState.SILENT
                and any(e.text.startswith("worker silent") for e in standing.events)
            ),
            bound_s=10,
        )
        await standing.until(lambda: standing.workers["localhost:cpu0"].silent_for_s > 5)
        assert standing.workers["localhost:cpu0"].stopped
        assert standing.workers["localhost:cpu1"].state is WorkerState.IDLE
    finally:
        os.kill(pid, signal.SIGCONT)
    await standing.until(lambda: standing.workers["localhost:cpu0"].state is WorkerState.IDLE)
