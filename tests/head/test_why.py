"""Ways of being stuck, each made on purpose with real workers of this machine, and its verdict."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from distributed import Client

from gputui.model.verdicts import Evidence, Verdict, verdicts
from gputui.protocol.frontend import Examine
from tests.clusters import Clusters, LiveCluster
from tests.head.test_head import client_of

pytestmark = pytest.mark.slow
NAMED_WITHIN_S = 25


async def why(cluster: LiveCluster) -> tuple[Verdict, ...]:
    """Return the verdicts, which take no longer than 3 s."""
    began = time.monotonic()
    found = await cluster.request(Examine(0))
    assert time.monotonic() - began < 3.0
    events = tuple(cluster.events)
    return verdicts(Evidence(cluster.snapshot, found.hosts, found.scheduler, events))


async def until(cluster: LiveCluster, *words: str, at: int = 0) -> Verdict:
    """Return the first verdict, or one after it, once it and its evidence have all these words."""
    said = ""
    try:
        async with asyncio.timeout(NAMED_WITHIN_S):
            while True:
                for verdict in (await why(cluster))[at : at + 1]:
                    said = "\n".join((f"{verdict.cause}: {verdict.text}", *verdict.evidence))
                    if all(word in said for word in words):
                        return verdict
                shown = cluster.snapshot
                await cluster.until(lambda: cluster.snapshot is not shown)  # noqa: B023
    except TimeoutError:
        raise AssertionError(f"{words} not in:\n{said}") from None


@contextlib.contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
async def client(standing: LiveCluster) -> AsyncIterator[Client]:
    async with client_of(standing) as client:
        yield client


async def test_a_stopped_worker_is_named_with_how_to_go_on(standing: LiveCluster) -> None:
    pid = standing.workers["localhost:cpu1"].pid
    with stopped(pid):
        verdict = await until(standing, "worker-stopped:")
        assert verdict.text.startswith("worker localhost:cpu1 is stopped by a signal")
        assert f"kill -CONT {pid}" in verdict.text


async def test_a_stopped_scheduler_is_named_and_workers_are_still_examined(
    standing: LiveCluster,
) -> None:
    with stopped(standing.snapshot.scheduler.pid):
        verdict = await until(standing, "scheduler-stopped:")
        assert "the scheduler's process is stopped" in verdict.text
        found = await standing.request(Examine(0))
        assert [worker.answered for worker in found.hosts[0].workers] == [True, True]


async def test_a_resource_that_no_worker_offers_is_named(
    standing: LiveCluster, client: Client
) -> None:
    task = client.submit(time.sleep, 0, resources={"FOO": 1}, pure=False)
    verdict = await until(standing, "no-place:")
    assert verdict.text == "1 task waits for what no worker offers: FOO"
    await client.cancel([task])


async def test_a_worker_that_was_asked_for_and_started_again_is_named(
    standing: LiveCluster, client: Client
) -> None:
    name = "localhost:cpu1"
    task = client.submit(time.sleep, 60, workers=[name], pure=False)
    await standing.until(lambda: standing.workers[name].executing)
    os.kill(standing.workers[name].pid or 0, signal.SIGKILL)
    verdict = await until(standing, "no-place:")
    offers = f"{name} (that process is gone: submit again)"
    assert verdict.text == f"1 task waits for what no worker offers: {offers}"
    await client.cancel([task])
    await standing.up(2)


async def test_a_cluster_without_tasks_waits_for_its_client(
    standing: LiveCluster, client: Client
) -> None:
    await standing.until(lambda: standing.snapshot and standing.snapshot.scheduler.clients)
    verdict = await until(standing, "idle:")
    assert verdict.text == "nothing: there is no task to do, and it waits for your client"


def inc(number: int) -> int:
    return number + 1


@pytest.mark.filterwarnings("ignore:Sending large graph")
async def test_a_graph_that_keeps_the_scheduler_busy_is_named(clusters: Clusters) -> None:
    cluster = await clusters.start("localhost gpus=none workers=1 nthreads=1 memory=500MiB", up=1)
    async with client_of(cluster) as client:
        tasks = client.map(inc, range(200_000), pure=False)
        verdict = await until(cluster, "scheduler-busy:")
        assert "with a graph that a client sent" in verdict.text, verdict
        cluster.head.terminate()
        del tasks


async def test_a_task_that_waits_for_a_result_of_a_stopped_worker_names_both(
    clusters: Clusters,
) -> None:
    cluster = await clusters.start(up=2)
    far, near = [cluster.workers[f"localhost:cpu{number}"] for number in (1, 0)]
    async with client_of(cluster) as client:
        held = client.submit(bytes, 10**6, workers=[far.address], pure=False)
        await held
        with stopped(far.pid):
            task = client.submit(len, held, workers=[near.address], pure=False)
            verdict = await until(cluster, "result-away:", at=1)
            assert verdict.text == "1 task waits for a result of localhost:cpu1, which is stopped"
        assert await task == 10**6


def take_memory() -> None:
    import sys

    sys.taken = b"x" * 2 * 10**8  # type: ignore[attr-defined]


async def test_workers_that_are_all_paused_by_memory_are_named(clusters: Clusters) -> None:
    shares = {"pause": 0.5, "target": False, "spill": False}
    config = json.dumps({"distributed": {"worker": {"memory": shares}}})
    cluster = await clusters.start(
        "localhost gpus=none workers=1 nthreads=1 memory=500MiB", dask_config_json=config
    )
    await cluster.up(1)
    async with client_of(cluster) as client:
        await client.run(take_memory)
        task = client.submit(inc, 1)
        verdict = await until(cluster, "paused:")
        assert verdict.text == "all workers are paused: memory"
        assert "of 500 MiB" in verdict.evidence[0]
        await client.cancel([task])
