"""Scaling a real cluster at work: nothing is lost, two frontends do not undo each other."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gputui.client.head_process import HeadProcess
from gputui.errors import HeadError
from gputui.protocol.frontend import Previewed, Restart, RetireWorkers, Scale
from tests.clusters import Clusters, LiveCluster
from tests.head.test_head import client_of

WORKERS = 3


@pytest.fixture
async def cluster(standing: LiveCluster) -> LiveCluster:
    """The cluster that they share, scaled to its three workers."""
    await standing.request(Scale(0, WORKERS))
    return standing


@pytest.fixture
async def other(standing_head: tuple[HeadProcess, str]) -> AsyncIterator[LiveCluster]:
    """Another frontend of it."""
    attached = await Clusters().attach(*standing_head)
    await attached.until(lambda: attached.snapshot)
    yield attached
    await attached.link.close()


def up(cluster: LiveCluster) -> set[str]:
    return {name for name, worker in cluster.workers.items() if worker.state.up}


@pytest.mark.slow
async def test_what_is_persisted_moves_before_its_worker_goes(cluster: LiveCluster) -> None:
    async with client_of(cluster) as client:
        pieces = client.map(lambda n: bytes([n]) * 100_000, range(30))
        await client.gather(pieces)
        await cluster.until(lambda: sum(w.in_memory or 0 for w in cluster.workers.values()) == 30)
        gone = ("localhost:cpu0", "localhost:cpu2")
        previewed = await cluster.request(RetireWorkers(0, gone, preview=True))
        assert isinstance(previewed, Previewed) and set(previewed.stops) == set(gone)
        assert "move" in previewed.text
        await cluster.request(RetireWorkers(0, gone))
        await cluster.until(lambda: set(cluster.workers) == {"localhost:cpu1"})
        assert await client.submit(lambda parts: sum(map(sum, parts)), pieces) == 100_000 * 435
        assert not any(event.kind in ("lost", "recomputed") for event in cluster.events)


async def test_a_computation_goes_on_while_the_cluster_grows_and_shrinks(
    cluster: LiveCluster,
) -> None:
    async with client_of(cluster) as client:
        begun = client.map(lambda n: (n, [0] * 1000)[0] * 2, range(400))
        for workers in (1, 3, 2):
            await cluster.request(Scale(0, workers))
            await cluster.until(lambda wanted=workers: len(up(cluster)) == wanted)
        assert sum(await client.gather(begun)) == 400 * 399


async def test_two_frontends_that_scale_at_once_end_at_what_was_asked_last(
    cluster: LiveCluster, other: LiveCluster
) -> None:
    await asyncio.gather(
        *(
            frontend.request(Scale(0, workers))
            for workers in (3, 1)
            for frontend in (cluster, other)
        )
    )
    await cluster.request(Scale(0, 2))
    for frontend in (cluster, other):
        await frontend.until(lambda frontend=frontend: frontend.snapshot.wanted_workers == 2)
        await frontend.until(
            lambda frontend=frontend: len(up(frontend)) == 2 and len(frontend.workers) == 2
        )


async def test_what_leaves_counts_as_room_for_more(cluster: LiveCluster) -> None:
    await cluster.request(Scale(0, 0))
    assert "room" not in (await cluster.request(Scale(0, WORKERS))).text
    await cluster.until(lambda: len(up(cluster)) == WORKERS)


@pytest.mark.parametrize("workers", [-1, 1_000_001])
async def test_a_number_that_no_cluster_has_is_refused(cluster: LiveCluster, workers: int) -> None:
    with pytest.raises(HeadError, match="write a number from 0 to 1000000"):
        await cluster.request(Scale(0, workers))


async def test_two_frontends_that_retire_the_same_worker_lose_one_only(
    cluster: LiveCluster, other: LiveCluster
) -> None:
    name = ("localhost:cpu1",)
    answers = await asyncio.gather(
        *(frontend.request(RetireWorkers(0, name)) for frontend in (cluster, other)),
        return_exceptions=True,
    )
    assert any(not isinstance(answer, BaseException) for answer in answers)
    await cluster.until(lambda: set(cluster.workers) == {"localhost:cpu0", "localhost:cpu2"})


async def test_a_preview_is_what_then_happens(cluster: LiveCluster) -> None:
    previewed = await cluster.request(Scale(0, 1, preview=True))
    assert isinstance(previewed, Previewed) and len(previewed.stops) == 2
    await cluster.request(Scale(0, 1))
    left = {"localhost:cpu0", "localhost:cpu1", "localhost:cpu2"} - set(previewed.stops)
    await cluster.until(lambda: set(cluster.workers) == left)


async def test_all_workers_restarted_have_other_processes_and_compute(cluster: LiveCluster) -> None:
    before = {worker.pid for worker in cluster.workers.values()}
    await cluster.request(Restart(0, ()))
    await cluster.until(
        lambda: len(up(cluster)) == 3 and not before & {w.pid for w in cluster.workers.values()}
    )
    async with client_of(cluster) as client:
        assert await client.submit(sum, [1, 2]) == 3
