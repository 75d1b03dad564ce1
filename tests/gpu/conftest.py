"""The client of the cluster on which operations compute: the standing one, or one of all GPUs."""

import os
from collections.abc import Iterator

import pytest
from distributed import Client

from gputui import GPUCluster


@pytest.fixture(scope="module")
def client() -> Iterator[Client | None]:
    """The cluster's client; None where `tests.gpu.standing` has Dask compute alone."""
    if "GPUS" in os.environ:
        yield Client.current() if os.environ["GPUS"] else None
        return
    with GPUCluster("localhost", name=f"on-{os.getpid()}") as cluster, Client(cluster) as client:
        yield client
