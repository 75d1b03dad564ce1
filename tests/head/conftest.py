"""Clusters of this machine's own workers: one of a test's own, or one that a module shares."""

import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gputui.client.head_process import HeadProcess
from gputui.client.start import spawn_head
from gputui.protocol.frontend import Scale
from gputui.protocol.starter import ConfigureHead
from tests.agent.conftest import nvml  # noqa: F401
from tests.clusters import LEASE_S, Clusters, LiveCluster


@pytest.fixture
async def clusters(runtime: Path) -> AsyncIterator[Clusters]:
    clusters = Clusters()
    yield clusters
    await clusters.close()


@pytest.fixture(scope="module")
def standing_head(request: pytest.FixtureRequest) -> Iterator[tuple[HeadProcess, str]]:
    """The head of a cluster that a module shares, of its `WORKERS` or two, and its socket."""
    workers = getattr(request.module, "WORKERS", 2)
    with a_head(f"localhost gpus=none workers={workers} nthreads=1 memory=1GiB") as head:
        yield head


@contextlib.contextmanager
def a_head(hosts: str, **settings: object) -> Iterator[tuple[HeadProcess, str]]:
    """Run a head on these hosts, in folders of its own; yield it and its socket."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="gt-") as folder:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.setenv("XDG_STATE_HOME", folder)
        config = ConfigureHead("standing", hosts, **{"lease_s": LEASE_S, **settings})
        head = spawn_head(config)
        yield head, head.opened()
        os.kill(head.pid, signal.SIGTERM)
        head.end()


@pytest.fixture
async def standing(
    request: pytest.FixtureRequest, standing_head: tuple[HeadProcess, str]
) -> AsyncIterator[LiveCluster]:
    """The cluster that a module shares, with all its workers; the frontend is the test's own."""
    cluster = await Clusters().attach(*standing_head)
    try:
        await cluster.request(Scale(0, None))
        await cluster.up(getattr(request.module, "WORKERS", 2))
        yield cluster
    finally:
        await cluster.link.close()
