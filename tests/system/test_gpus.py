"""On real GPUs: pinning by UUID, what does not fit a device, arrays from worker to worker.

Skipped where the machine has none; nothing here stands in for a GPU.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from gputui import GPUCluster
from tests.system.conftest import Command

pytestmark = pytest.mark.skipif(
    not Path("/dev/nvidia0").exists(), reason="this machine has no NVIDIA GPU"
)

GIB = 2**30


def gpu_uuids() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with GPUCluster() as cluster, Client(cluster) as one:
        wait_for_devices(one)
        yield one


def wait_for_devices(client: Client) -> None:
    """Wait until every worker has its device open: tasks wait for that, `run` does not."""
    for worker in client.scheduler_info(-1)["workers"]:
        client.submit(visible_devices, workers=[worker], pure=False).result()


def test_every_worker_sits_on_the_gpu_it_was_pinned_to(gputui: Command) -> None:
    done = gputui.json("--run", "smoke")
    rows = done["result"]["workers"]
    assert done["backend"] == "cupy" and done["result"]["all_right"]
    assert [row["device"] for row in rows] == [row["pinned_to"] for row in rows]
    assert sorted(row["device"] for row in rows) == sorted(gpu_uuids())
    assert sorted(worker["uuid"] for worker in done["workers"]) == sorted(gpu_uuids())


def test_two_workers_on_each_gpu_share_its_memory() -> None:
    with (
        GPUCluster("localhost workers-per-gpu=2", name="shared") as cluster,
        Client(cluster) as client,
    ):
        wait_for_devices(client)
        total, limits = GIB * device_gib(client), client.run(pool_limit).values()
        assert len(limits) == 2 * len(gpu_uuids())
        assert all(0.4 * total < limit < 0.5 * total for limit in limits)


def test_a_worker_sees_one_device(client: Client) -> None:
    assert set(client.run(visible_devices).values()) == {1}


def test_singular_values_agree_with_numpy_on_the_same_data(gputui: Command) -> None:
    small = ("--run", "svd", "-p", "rows=4000", "-p", "cols=100", "-p", "source=numpy")
    values = [
        gputui.json(*small, "--backend", backend)["result"]["singular_values"]
        for backend in ("cupy", "numpy")
    ]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-10)


def test_what_does_not_fit_the_device_goes_to_host_memory_and_comes_back(client: Client) -> None:
    worker = next(iter(client.run(visible_devices)))
    before = client.run(limit_device, 4 * GIB, workers=[worker])[worker]
    kept = [client.submit(filled, each, workers=[worker], key=f"held-{each}") for each in range(8)]
    assert client.gather([client.submit(first, each, workers=[worker]) for each in kept]) == list(
        range(8)
    )
    held = client.run(device_held, workers=[worker])[worker]
    client.run(limit_device, before, workers=[worker])
    assert 0 < held <= 4 * GIB


def test_an_allocation_that_does_not_fit_moves_what_is_held_and_succeeds(client: Client) -> None:
    worker = next(iter(client.run(visible_devices)))
    before = client.run(limit_pool, 12 * GIB, workers=[worker])[worker]
    kept = client.submit(filled, 7, 8, workers=[worker], key="held")
    other = client.submit(filled, 5, 8, workers=[worker], key="held-too")
    assert client.submit(first, other, workers=[worker]).result() == 5
    assert client.submit(first, kept, workers=[worker]).result() == 7
    client.run(limit_pool, before, workers=[worker])


def test_too_large_for_the_device_is_an_error_that_leaves_the_worker_alive(client: Client) -> None:
    worker = next(iter(client.run(visible_devices)))
    with pytest.raises(Exception, match="Out of memory"):
        client.submit(filled, 1, 4 * device_gib(client), workers=[worker]).result()
    assert client.submit(first, client.submit(filled, 3, workers=[worker])).result() == 3


@pytest.mark.skipif(len(list(Path("/dev").glob("nvidia[0-9]*"))) < 2, reason="needs two GPUs")
def test_arrays_travel_between_the_devices(client: Client) -> None:
    one, other = list(client.run(visible_devices))[:2]
    array = client.submit(filled, 9, workers=[one], key="travels")
    assert client.submit(where_and_what, array, workers=[other]).result() == ("cupy", 9.0)


def test_an_array_comes_to_the_client_where_it_has_cupy(client: Client) -> None:
    array = client.submit(transposed, pure=False).result()
    assert (array.get() == np.arange(6.0).reshape(2, 3).T).all()


def visible_devices() -> int:
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def pool_limit() -> int:
    import cupy

    return int(cupy.get_default_memory_pool().get_limit())


def limit_pool(bytes_: int) -> int:
    import cupy

    pool = cupy.get_default_memory_pool()
    before = pool.get_limit()
    pool.set_limit(size=bytes_)
    return int(before)


def device_gib(client: Client) -> int:
    return min(client.run(total_bytes).values()) // GIB


def total_bytes() -> int:
    import cupy

    return int(cupy.cuda.Device().mem_info[1])


def limit_device(bytes_: int, dask_worker: Any) -> int:
    before, dask_worker.data.limit_bytes = dask_worker.data.limit_bytes, bytes_
    return int(before)


def device_held(dask_worker: Any) -> int:
    return int(dask_worker.data.device_bytes)


def filled(value: int, gib: int = 1) -> Any:
    import cupy

    return cupy.full(gib * GIB // 8, float(value))


def first(array: Any) -> int:
    return int(array[0]) if float(array[-1]) == float(array[0]) else -1


def where_and_what(array: Any) -> tuple[str, float]:
    return type(array).__module__.partition(".")[0], float(array[0])


def transposed() -> Any:
    import cupy

    return cupy.arange(6.0).reshape(2, 3).T
