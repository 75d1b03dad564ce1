"""Connections that never finish their handshake: schedulers and workers have room all the same."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.head.__main__ import log_folder
from tests.clusters import Clusters
from tests.head.test_head import client_of
from tests.system.parts import parts_of

HALF_OPEN = 2_000
FILES = 1_024


@pytest.mark.slow
async def test_half_open_connections_leave_room_for_clients_and_a_small_log(
    clusters: Clusters, runtime: Path
) -> None:
    cluster = await clusters.start(up=1)
    (scheduler,) = parts_of(cluster.id)["scheduler"]
    resource.prlimit(scheduler, resource.RLIMIT_NOFILE, (FILES, FILES))
    with flood(cluster.link.address, HALF_OPEN):
        async with asyncio.timeout(20):
            async with client_of(cluster) as client:
                assert await client.submit(sum, [1, 2]) == 3
        assert len(list(Path(f"/proc/{scheduler}/fd").iterdir())) < FILES
    written = sum(path.stat().st_size for path in log_folder().iterdir())
    assert written < 1_000_000


@pytest.mark.slow
async def test_half_open_connections_to_a_worker_leave_room_for_its_tasks_and_values(
    clusters: Clusters,
) -> None:
    cluster = await clusters.start(up=2)
    pids = {worker.address: worker.pid for worker in cluster.workers.values()}
    flooded, other = pids
    resource.prlimit(pids[flooded], resource.RLIMIT_NOFILE, (FILES, FILES))
    async with client_of(cluster) as client:
        with flood(flooded, HALF_OPEN):
            value = client.submit(pow, 2, 20_000, workers=[flooded], pure=False)
            size = client.submit(int.bit_length, value, workers=[other], pure=False)
            assert await asyncio.wait_for(size, 20) == 20_001
            open_files = len(list(Path(f"/proc/{pids[flooded]}/fd").iterdir()))
    assert open_files < FILES / 2


@contextlib.contextmanager
def flood(address: str, count: int) -> Iterator[None]:
    """Hold open connections that say nothing."""
    host, _, port = address.removeprefix("tls://").rpartition(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    with contextlib.ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex((host, int(port)))
        yield
