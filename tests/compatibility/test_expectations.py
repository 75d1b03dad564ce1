"""What Dask's own tests expect of a LocalCluster holds for a GPUCluster, too.

distributed's wheel carries no tests. Each test here names the one that it follows, in
`distributed/deploy/tests/` of 2026.8: test_local.py, test_cluster.py, test_spec_cluster.py and
test_adaptive.py.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client
from distributed.core import Status
from distributed.deploy.cluster import Cluster

from gputui.presets.workers import known_workers
from tests.compatibility.standing import cluster


def within(bound_s: float, holds: Callable[[], object]) -> None:
    end = time.monotonic() + bound_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def held() -> Iterator[Any]:
    """Two workers, which each test leaves as they were."""
    with cluster() as one:
        yield one


@pytest.fixture
def client(held: Any) -> Iterator[Client]:
    held.scale(2)
    with Client(held) as one:
        one.wait_for_workers(2, timeout=60)
        yield one


def test_it_describes_itself(held: Any, client: Client) -> None:
    """test_local: test_repr, test_cluster_info_sync; test_cluster: test_eq, test_repr."""
    assert isinstance(held, Cluster)
    assert held == held and held != "cluster"
    assert "workers=2" in repr(held) and "threads=2" in repr(held) and "4.00 GiB" in repr(held)
    assert held.scheduler_info["address"] == held.scheduler_address
    assert held.status is Status.running
    assert isinstance(held.name, str) and held.name in repr(held)


def test_its_widget_shows_workers(held: Any, client: Client) -> None:
    """test_local: test_ipywidgets; test_spec_cluster: test_widget."""
    pytest.importorskip("ipywidgets")
    shown: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("IPython.display.display", lambda *a, **k: shown.append((a, k)))
        held._ipython_display_()
    assert shown


def test_a_client_takes_it_and_its_address(held: Any, client: Client) -> None:
    """test_local: test_simple, test_client_cluster_synchronous; test_cluster: test_get_client."""
    assert client.submit(sum, [1, 2]).result(timeout=30) == 3
    assert held.get_client() is client
    with Client(held.scheduler_address, security=held.security) as by_hand:
        assert by_hand.submit(sum, [1, 4]).result(timeout=30) == 5


def test_its_logs_are_those_of_all_its_parts(held: Any, client: Client) -> None:
    """test_local: test_logs; test_spec_cluster: test_logs."""
    logs = held.get_logs(cluster=True, scheduler=True, workers=True)
    assert {"Cluster", "Scheduler", *held.scheduler_info["workers"]} == set(logs)
    assert set(held.get_logs(cluster=False, scheduler=False)) < set(logs)


def test_it_is_scaled_up_and_down(held: Any, client: Client) -> None:
    """test_local: test_scale_up_and_down, test_scale_retires_workers."""
    held.scale(3)
    client.wait_for_workers(3, timeout=60)
    held.scale(1)
    within(60, lambda: len(known_workers(client)) == 1)
    assert len(held.plan) == len(held.requested) == 1


def test_it_is_scaled_by_cores_and_memory(held: Any, client: Client) -> None:
    """test_local: test_scale_memory_cores; test_spec_cluster: test_scale_cores_memory."""
    held.scale(cores=3)
    assert len(held.plan) == 3
    held.scale(memory="4GiB")
    assert len(held.plan) == 2


def test_a_worker_that_dies_is_replaced(held: Any, client: Client) -> None:
    """test_spec_cluster: test_unexpected_closed_worker; nanny: test_nanny_process_failure."""

    def die() -> None:
        import os

        os._exit(1)

    names = {info["name"] for info in known_workers(client).values()}
    first = next(iter(known_workers(client)))
    client.submit(die, workers=[first], allow_other_workers=False, retries=0, pure=False)
    within(60, lambda: first not in known_workers(client))
    client.wait_for_workers(2, timeout=60)
    assert {info["name"] for info in known_workers(client).values()} == names


def test_it_restarts_with_all_its_workers(held: Any, client: Client) -> None:
    """test_spec_cluster: test_restart."""
    before = set(known_workers(client))
    client.restart(timeout=60)
    after = set(known_workers(client))
    assert len(after) == 2 and not after & before
    assert client.submit(sum, [1, 2]).result(timeout=30) == 3


def test_it_adapts_within_bounds_and_then_obeys_again(held: Any, client: Client) -> None:
    """test_adaptive: test_min_max, test_adapt_quickly, test_adapt_then_manual."""
    adaptive = held.adapt(minimum=1, maximum=3, interval="200ms", wait_count=2)
    assert (adaptive.minimum, adaptive.maximum) == (1, 3)
    slow = client.map(lambda n: __import__("time").sleep(0.5), range(60), pure=False)
    client.wait_for_workers(3, timeout=60)
    client.cancel(slow)
    within(60, lambda: len(known_workers(client)) == 1)
    adaptive.stop()
    held.scale(2)
    client.wait_for_workers(2, timeout=60)


def test_adapt_takes_the_place_of_adapt(held: Any, client: Client) -> None:
    """test_adaptive: test_update_adaptive."""
    first = held.adapt(minimum=1, maximum=2, interval="200ms")
    second = held.adapt(minimum=2, maximum=2, interval="200ms")
    assert second is not first and second.minimum == 2
    client.wait_for_workers(2, timeout=60)
    second.stop()


def test_it_is_closed_twice_and_without_workers() -> None:
    """test_local: test_close_twice, test_no_workers, test_context_manager."""
    with cluster(n_workers=0) as empty:
        assert not empty.scheduler_info["workers"] and "workers=0" in repr(empty)
        empty.close()
        empty.close()
        assert empty.status is Status.closed
