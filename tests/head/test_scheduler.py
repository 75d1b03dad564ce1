"""What gputui's scheduler does other than Dask's, with workers that come and go."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Worker, get_worker

from gputui.engine.tls import security
from gputui.head.scheduler.scheduler import Reporter, Scheduler, count
from gputui.head.scheduler_process import make_certificate
from gputui.model.usage import Way
from gputui.protocol.scheduler import (
    ConfigureScheduler,
    Counts,
    FromScheduler,
    Remove,
    Retire,
    Retired,
    StopScheduler,
    ToScheduler,
)
from tests.channels import memory_pair


class Cluster:
    """A scheduler with a client, and workers as a test wants them."""

    def __init__(self, scheduler: Scheduler, client: Client, folder: Path, tls: Any) -> None:
        self.scheduler, self.client = scheduler, client
        self._folder, self._tls = folder, tls

    @asynccontextmanager
    async def worker(self, **resources: float) -> AsyncIterator[Worker]:
        settings = {"local_directory": str(self._folder), "dashboard": False, "nthreads": 1}
        async with Worker(
            self.scheduler.address, security=self._tls, resources=resources, **settings
        ) as worker:
            yield worker


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    certificate = make_certificate()
    pems = (certificate.certificate_pem, certificate.key_pem)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    config = ConfigureScheduler("127.0.0.1", 0, certificate, 1.0, str(scratch))
    async with (
        Scheduler(config) as scheduler,
        Client(scheduler.address, security=security(*pems), asynchronous=True) as client,
    ):
        yield Cluster(scheduler, client, tmp_path, security(*pems))


def where() -> str:
    return str(get_worker().address)


async def test_a_task_of_a_lost_last_worker_runs_on_the_next_one(cluster: Cluster) -> None:
    async with cluster.worker() as gone:
        pass
    found = cluster.client.submit(where, workers=[gone.address], allow_other_workers=True)
    async with cluster.worker() as other:
        assert await asyncio.wait_for(found, 30) == other.address


async def test_a_task_that_needs_a_gpu_never_runs_without_one(cluster: Cluster) -> None:
    async with cluster.worker() as without:
        async with cluster.worker(GPU=1) as gone:
            pass
        found = cluster.client.submit(
            where, workers=[gone.address], allow_other_workers=True, resources={"GPU": 1}
        )
        assert await cluster.client.submit(where, pure=False) == without.address
        async with cluster.worker(GPU=1) as other:
            assert await asyncio.wait_for(found, 30) == other.address


async def test_an_order_that_fails_is_not_the_end_of_the_scheduler(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(cluster.scheduler, "remove_worker", fails)
    to_scheduler, to_head = memory_pair(FromScheduler, ToScheduler)
    reporter = Reporter(cluster.scheduler, to_head)
    obeying = asyncio.create_task(reporter.obey())
    async with cluster.worker() as worker:
        to_scheduler.send(Remove((str(worker.name),), "gone"))
        to_scheduler.send(Retire(7, ("nobody",)))
        assert await to_scheduler.receive() == Retired(7, ("nobody",))
    assert "of ours" in caplog.text
    to_scheduler.send(StopScheduler())
    await asyncio.wait_for(obeying, 10)
    await to_scheduler.close()
    await to_head.close()


async def counted(cluster: Cluster, holds: Callable[[Counts], bool]) -> Counts:
    """Return the counts as soon as they are as they should be."""
    async with asyncio.timeout(30):
        while not holds(counts := count(cluster.scheduler)):
            await asyncio.sleep(0.02)
    return counts


async def test_what_runs_is_counted_by_group_apart_from_what_waits(cluster: Cluster) -> None:
    async with cluster.worker():
        tasks = [cluster.client.submit(time.sleep, 3, pure=False) for _ in range(3)]
        counts = await counted(cluster, lambda c: c.workers[0].task_since is not None)
        (group,), (worker,) = counts.groups, counts.workers
        assert (group.processing + group.queued, group.executing) == (3, 1)
        assert (worker.executing, worker.ready) == (1, group.processing - 1)
        assert worker.task_since == pytest.approx(time.time() - 1, abs=2.5)
        await cluster.client.cancel(tasks)


async def test_tasks_are_counted_by_prefix_also_where_nothing_is_left_of_them(
    cluster: Cluster,
) -> None:
    async with cluster.worker():
        for _ in range(3):
            await cluster.client.submit(time.sleep, 0.05, pure=False)
        counts = await counted(cluster, lambda c: not c.tasks)
    (asleep,) = counts.prefixes
    assert (asleep.prefix, asleep.tasks) == ("sleep", 3)
    assert 0.15 <= asleep.compute_s < 3.0


async def test_a_group_says_what_its_tasks_ask_for_that_nobody_offers(cluster: Cluster) -> None:
    async with cluster.worker():
        asking = cluster.client.submit(where, resources={"FOO": 1})
        counts = await counted(cluster, lambda c: any(group.no_worker for group in c.groups))
        assert counts.groups[0].needs == ("FOO",)
        await cluster.client.cancel([asking])


async def test_a_worker_that_waits_for_a_result_of_another_is_said_to_fetch(
    cluster: Cluster,
) -> None:
    async with cluster.worker() as owner, cluster.worker() as reader:
        owner.transfer_outgoing_count_limit = 0
        value = cluster.client.submit(where, workers=[owner.address])
        taken = cluster.client.submit(str, value, workers=[reader.address])
        counts = await counted(cluster, lambda c: any(each.fetching for each in c.workers))
        assert [each.name for each in counts.workers if each.fetching] == [reader.name]
        owner.transfer_outgoing_count_limit = 10
        assert await asyncio.wait_for(taken, 30) == owner.address
        await counted(cluster, lambda c: not any(each.fetching for each in c.workers))


async def test_what_came_to_a_worker_is_counted_by_way(cluster: Cluster) -> None:
    async with cluster.worker() as worker:
        worker.metrics["gputui"] = lambda _: {"moved": {"TLS": 7, "CUDA IPC": 9}}
        counts = await counted(cluster, lambda c: bool(c.workers and c.workers[0].moved))
        assert dict(counts.workers[0].moved) == {Way.CONNECTION: 7, Way.DEVICE: 9}
