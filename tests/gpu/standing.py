"""A pytest plugin: a standing cluster of this machine's GPUs, on which suites compute.

`GPUS=0,1 pytest -p tests.gpu.standing --pyargs dask.array.tests.test_cupy_core`. Dask's suites
name the scheduler "sync" nearly everywhere; here that is the cluster, too, so that what they
compute is computed there.
"""

import os
from contextlib import ExitStack

import dask.base
from distributed import Client

from gputui import GPUCluster

ON_THE_CLUSTER = ("sync", "synchronous", "single-threaded", "threads", "threading")

_session = ExitStack()


def pytest_sessionstart() -> None:
    """Start the cluster, and have its client be Dask's default; without GPUS, start none."""
    gpus = os.environ["GPUS"]
    if not gpus:
        return
    cluster = _session.enter_context(GPUCluster(f"localhost gpus={gpus}", name=f"on-{os.getpid()}"))
    client = _session.enter_context(Client(cluster))
    client.wait_for_workers(len(gpus.split(",")), timeout=60)
    dask.base.named_schedulers.update(dict.fromkeys(ON_THE_CLUSTER, client.get))


def pytest_sessionfinish() -> None:
    """Close it."""
    _session.close()
