"""How many values a worker asks of another at once."""

import dask
import pytest
from distributed.worker_state_machine import (
    ComputeTaskEvent,
    GatherDep,
    TaskState,
    WorkerState,
)

from gputui.worker.worker import NearFirst, limits

HERE, NEAR, FAR = "tls://10.0.0.1:1", "tls://10.0.0.1:2", "tls://10.0.0.2:1"
MB, GIB = 10**6, 2**30


@pytest.fixture(autouse=True)
def _configured_now() -> None:
    limits.cache_clear()


def asked(worker: str) -> int:
    """Return how many of ten values of 40 MB are asked of a worker at once."""
    state = WorkerState(nthreads=1, address=HERE, transfer_incoming_bytes_limit=10 * GIB)
    state.__class__ = NearFirst
    keys = [f"key-{i}" for i in range(10)]
    event = ComputeTaskEvent.dummy(
        "sum",
        stimulus_id="",
        who_has={key: [worker] for key in keys},
        nbytes=dict.fromkeys(keys, 40 * MB),
    )
    [gather] = [i for i in state.handle_stimulus(event) if isinstance(i, GatherDep)]
    assert all(isinstance(state.tasks[key], TaskState) for key in gather.to_gather)
    return len(gather.to_gather)


def test_a_worker_of_the_same_host_is_asked_for_more_at_once() -> None:
    assert (asked(NEAR), asked(FAR)) == (10, 1)


@pytest.mark.parametrize(("configured", "number"), [("100MB", 2), ("4GB", 10)])
def test_a_users_own_limit_holds_for_every_worker(configured: str, number: int) -> None:
    with dask.config.set({"distributed.worker.transfer.message-bytes-limit": configured}):
        assert asked(NEAR) == asked(FAR) == number


def test_where_arrays_go_as_bytes_no_worker_is_asked_for_more() -> None:
    with dask.config.set({"gputui.transfers": "bytes"}):
        assert asked(NEAR) == asked(FAR) == 1
