"""What a user of Dask's own clusters writes, as scripts of their own: what gputui is held against.

    python -m tests.benchmarks.peers local 4
    python -m tests.benchmarks.peers ssh < hosts.json
    python -m tests.benchmarks.peers gpus 8         # LocalCUDACluster, or a stand-in for it
    python -m tests.benchmarks.peers gputui 8       # the same with GPUCluster

Each starts a cluster, computes on each of its workers, prints `registered` and `result` when it
has come so far, and ends with its cluster. None serves a dashboard, which takes a second more
where Bokeh is installed: gputui's cluster does not either.
"""

import json
import sys
from contextlib import AbstractContextManager
from typing import Any

SIZE = 2048
"""Side of the square that random-sum is asked for, in chunks of 1,024: one for each worker."""


def main() -> None:
    """Be the script that is named."""
    which, *arguments = sys.argv[1:]
    scripts = {"local": local, "ssh": ssh, "gpus": gpus, "gputui": gputui}
    scripts[which](*map(int, arguments))


def local(workers: int) -> None:
    """Compute on LocalCluster's processes."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster):
        print("result", random_sum())


def ssh() -> None:
    """Compute on SSHCluster; the hosts and how to connect to each are JSON on stdin."""
    from distributed import Client, SSHCluster

    hosts = json.load(sys.stdin)
    cluster = SSHCluster(
        [hosts[0]["host"], *(host["host"] for host in hosts)],
        connect_options=[host["connect"] for host in (hosts[0], *hosts)],
        worker_options={"nthreads": 1},
        scheduler_options={"port": 0, "dashboard": False},
        remote_python=sys.executable,
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(len(hosts))
        print("result", random_sum())


def random_sum() -> float:
    """The expression as published, on NumPy."""
    import dask.array as da

    x = da.random.default_rng(0).normal(10, 1, size=(SIZE, SIZE), chunks=(SIZE // 2, SIZE // 2))
    return float((x + 1)[::2, ::2].sum().compute())


def gpus(count: int) -> None:
    """Compute on each GPU with LocalCUDACluster where it is installed."""
    from distributed import Client

    with _cuda_cluster(count) as cluster, Client(cluster) as client:
        on_each_gpu(client, count)


def gputui(count: int) -> None:
    """Compute on each GPU with gputui's cluster."""
    from gputui import GPUCluster

    indices = ",".join(map(str, range(count)))
    with GPUCluster(f"localhost gpus={indices}") as cluster:
        cluster.wait_for_workers(count)
        print("registered", flush=True)
        from distributed import Client

        with Client(cluster) as client:
            on_each_gpu(client, count)


def on_each_gpu(client: Any, count: int) -> None:
    """Print `registered` once that many workers are there, `result` once each has computed."""
    client.wait_for_workers(count)
    print("registered", flush=True)
    addresses = client.scheduler_info(n_workers=-1)["workers"]
    futures = [client.submit(cupy_sum, workers=[each], pure=False) for each in addresses]
    print("result", sum(client.gather(futures)), flush=True)


def cupy_sum() -> float:
    """Add up a million ones on this worker's GPU."""
    import cupy

    return float(cupy.ones(1_000_000).sum())


def _cuda_cluster(count: int) -> AbstractContextManager[Any]:
    try:
        from dask_cuda import LocalCUDACluster
    except ImportError:
        return _stand_in(count)
    return LocalCUDACluster(n_workers=count, dashboard_address=None)


def _stand_in(count: int) -> Any:
    """Return a LocalCluster with a process for each GPU, which makes its context as it starts."""
    from distributed import LocalCluster, Nanny

    cluster = LocalCluster(n_workers=0, dashboard_address=None)
    for index in range(count):
        cluster.worker_spec[index] = {
            "cls": Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": 0,
                "env": {"CUDA_VISIBLE_DEVICES": str(index)},
                "preload": "import cupy; cupy.cuda.runtime.free(0)",
            },
        }
    cluster.sync(cluster._correct_state)
    return cluster


if __name__ == "__main__":
    main()
