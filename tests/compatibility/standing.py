"""A pytest plugin: a standing cluster, on which other people's suites compute.

`pytest -p tests.compatibility.standing --pyargs dask.bag.tests`; COMPATIBILITY_CLUSTER names its
kind. Dask's suites name the scheduler "sync" nearly everywhere; here that is the cluster, too, so
that what they compute is computed there.
"""

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask.base
import dask.distributed
import pytest
from distributed import Client, LocalCluster

from gputui import GPUCluster

KINDS = ("LocalCluster", "GPUCluster")
KIND = os.environ.get("COMPATIBILITY_CLUSTER", "GPUCluster")
HOSTS = "localhost gpus=none"
ON_THE_CLUSTER = ("sync", "synchronous", "single-threaded", "threads", "threading")

CLOSES_ALL = ("test_p2p_as_delayed",)
"""Run by distributed's `gen_cluster`, which closes every cluster of the process at its end."""

_session = ExitStack()


@contextmanager
def cluster(**keywords: Any) -> Iterator[Any]:
    """Hold two workers with a thread each, unless the keywords say else."""
    with tempfile.TemporaryDirectory(prefix="gt-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        size = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GiB"} | keywords
        if KIND == "GPUCluster":
            with own_cluster(**size) as held:
                yield held
        else:
            with LocalCluster(**size, dashboard_address="127.0.0.1:0") as held:
                yield held


def own_cluster(*, processes: bool = True, **keywords: Any) -> GPUCluster:
    """Make the cluster that stands for a LocalCluster; its workers are processes always."""
    return GPUCluster(HOSTS, **keywords)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep COMPATIBILITY_MOST tests, the same ones each time, and none that uses a network."""
    unfit = ("slow", "network")
    usual = [item for item in items if not any(map(item.get_closest_marker, unfit))]
    usual = [item for item in usual if item.name not in CLOSES_ALL]
    by_chance = sorted(usual, key=lambda item: zlib.crc32(item.nodeid.encode()))
    items[:] = by_chance[: int(os.environ["COMPATIBILITY_MOST"])]


def pytest_sessionstart() -> None:
    """Start the cluster, or have a suite that starts a LocalCluster itself get one of its kind."""
    if "COMPATIBILITY_TRANSITIONS" in os.environ:
        client = Client(_session.enter_context(cluster()), set_as_default=True)
        _session.callback(client.close)
        _session.callback(_write_transitions, client)
        dask.base.named_schedulers.update(dict.fromkeys(ON_THE_CLUSTER, client.get))
    elif KIND == "GPUCluster":
        dask.distributed.LocalCluster = own_cluster


def _write_transitions(client: Client) -> None:
    """Write how much its scheduler did: a suite that never asks it shows nothing."""
    counted = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
    Path(os.environ["COMPATIBILITY_TRANSITIONS"]).write_text(str(counted))


def pytest_sessionfinish() -> None:
    """Close it."""
    _session.close()
