"""A pytest plugin: a standing cluster, whose client is Dask's default for a whole session.

`pytest -p tests.compatibility.standing --pyargs dask.bag.tests`, with the class of the cluster in
COMPATIBILITY_CLUSTER.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from distributed import Client, LocalCluster

from gputui import GPUCluster

_session = ExitStack()


@contextmanager
def cluster(kind: str) -> Iterator[Any]:
    """Hold two workers with a thread each."""
    with tempfile.TemporaryDirectory(prefix="gt-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        size = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GiB"}
        if kind == "GPUCluster":
            with GPUCluster("localhost gpus=none", **size) as held:
                yield held
        else:
            with LocalCluster(**size, dashboard_address=":0") as held:
                yield held


def pytest_sessionstart() -> None:
    """Start the cluster."""
    held = _session.enter_context(cluster(os.environ["COMPATIBILITY_CLUSTER"]))
    client = Client(held, set_as_default=True)
    _session.callback(client.close)


def pytest_sessionfinish() -> None:
    """Close it."""
    _session.close()
