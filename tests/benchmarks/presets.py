"""The presets against what a user would write, side by side on the same GPUs.

    python -m tests.benchmarks.presets              # GPUs: the table of speeds
    python -m tests.benchmarks.presets --cpu        # CPUs: against NumPy on Dask's threads

The peer is dask-cuda's `LocalCUDACluster` where it is installed; otherwise a stand-in for it: a
`LocalCluster` of one process with one thread for each GPU, pinned by CUDA_VISIBLE_DEVICES and
without a host-memory limit, so that nothing of it is spilled. Ours is a gputui cluster
(`--ours gputui`) or, to measure the presets apart from it, the same stand-in (`--ours stand-in`).
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from distributed import Client, LocalCluster, Nanny

from gputui import presets
from gputui.runs import execution

SEED_CHUNK = 10_000
REPEATS = 3


def main() -> None:
    arguments = _arguments()
    if arguments.cpu:
        on_cpus()
        return
    count = arguments.gpus or len(_gpu_uuids())
    print(f"{count} × {_gpu_name()}, medians of {REPEATS} after one that warms up")
    peer = _peer_times(count, arguments)
    _print_peer(peer)
    with _ours(count, arguments.ours) as client:
        _our_table(client, count, arguments, peer)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--gpus", type=int, default=0, help="all by default")
    parser.add_argument("--size", type=int, default=500_000, help="side of random-sum")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of svd, for each GPU")
    parser.add_argument("--ours", choices=("gputui", "stand-in"), default="gputui")
    return parser.parse_args()


def measure(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Return the median time of a call in seconds, after one that warms it up."""
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


# Clusters


def _gpu_uuids() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()


def _gpu_name() -> str:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


@contextlib.contextmanager
def _peer(count: int) -> Iterator[Client]:
    try:
        from dask_cuda import LocalCUDACluster
    except ImportError:
        print("peer: a stand-in for LocalCUDACluster (dask-cuda is not installed)")
        with _stand_in(count) as client:
            yield client
        return
    print("peer: LocalCUDACluster")
    with (
        LocalCUDACluster(n_workers=count, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextlib.contextmanager
def _stand_in(count: int) -> Iterator[Client]:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(n_workers=0, dashboard_address=":0"))
        for index, uuid in enumerate(_gpu_uuids()[:count]):
            cluster.worker_spec[f"localhost:gpu{index}"] = {
                "cls": Nanny,
                "options": {
                    "nthreads": 1,
                    "memory_limit": 0,
                    "resources": {"GPU": 1},
                    "env": {"CUDA_VISIBLE_DEVICES": uuid},
                    "dashboard": False,
                },
            }
        cluster.sync(cluster._correct_state)
        client = stack.enter_context(Client(cluster))
        client.wait_for_workers(count)
        yield client


@contextlib.contextmanager
def _ours(count: int, which: str) -> Iterator[Client]:
    print(f"ours: {which}")
    if which == "stand-in":
        with _stand_in(count) as client:
            yield client
        return
    from gputui import GPUCluster

    gpus = ",".join(str(i) for i in range(count))
    with GPUCluster(f"localhost gpus={gpus}") as cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        yield client


# What a user would write


def seed_random_sum(size: int) -> float:
    """The 2 TB expression as published, on CuPy."""
    import cupy
    import dask.array as da

    rs = da.random.RandomState(RandomState=cupy.random.RandomState)
    x = rs.normal(10, 1, size=(size, size), chunks=(SEED_CHUNK, SEED_CHUNK))
    return float((x + 1)[::2, ::2].sum().compute())


def seed_svd(rows: int, cols: int, chunk_rows: int, vectors: bool) -> None:
    """`da.linalg.svd` of a uniform matrix on CuPy; u stays on the workers."""
    import cupy
    import dask
    import dask.array as da
    from distributed import wait

    rs = da.random.RandomState(RandomState=cupy.random.RandomState)
    x = rs.random((rows, cols), chunks=(chunk_rows, cols))
    u, s, v = da.linalg.svd(x)
    if vectors:
        wait(dask.persist(u, s, v))
    else:
        s.compute()


def _peer_times(count: int, arguments: argparse.Namespace) -> dict[str, float]:
    rows = count * arguments.rows
    with _peer(count):
        return {
            "random-sum": measure(lambda: seed_random_sum(arguments.size), 1),
            "svd s": measure(lambda: seed_svd(rows, 1000, 250_000, False)),
            "svd usv": measure(lambda: seed_svd(rows, 1000, 250_000, True)),
            "svd small": measure(lambda: seed_svd(10_000, 1000, 1000, False)),
        }


def _print_peer(times: dict[str, float]) -> None:
    for what, elapsed_s in times.items():
        print(f"  {what:<54}{elapsed_s:10.4f} s")


# The presets


def _our_table(
    client: Client, count: int, arguments: argparse.Namespace, peer: dict[str, float]
) -> None:
    size, rows = arguments.size, count * arguments.rows
    limit_s = _limit_s(client, size**2 / count)
    ours = measure(lambda: _run(client, "random-sum", size=size))
    _row("random-sum, against the seed's code on the peer", ours, peer["random-sum"])
    _row("random-sum, against cuRAND in registers", ours, limit_s)
    seed_s = measure(lambda: seed_random_sum(size), 1)
    _row("the seed's random-sum unchanged, ours against peer", seed_s, peer["random-sum"])
    ours = measure(lambda: seed_svd(rows, 1000, 250_000, False))
    _row("the seed's svd unchanged, ours against peer", ours, peer["svd s"])
    ours = measure(lambda: _run(client, "svd", rows=rows))
    _row(f"svd {rows:,} × 1,000, singular values", ours, peer["svd s"])
    vectors_s = measure(lambda: _run(client, "svd", rows=rows, vectors=True))
    _row("same, u, s and v kept", vectors_s, peer["svd usv"])
    checked = _run(client, "svd", rows=rows, check=True).result
    print(f"  ‖uᵀu − I‖ {checked['orthogonality']:.1e}, residual {checked['residual']:.1e}")
    small_s = measure(lambda: _run(client, "svd"))
    _row("svd 10,000 × 1,000", small_s, peer["svd small"])
    _scaling(client, count, arguments.rows, ours)
    for dtype in ("float64", "float32"):
        found = _run(client, "matmul", dtype=dtype).result
        rate = found["flops_per_s_each"] / 1e12
        print(f"  matmul {dtype}: {rate:.1f} TFLOP/s each, {found['share_of_own']:.2f} of its own")
    for each in _run(client, "convert").result["workers"]:
        print(f"  convert {each['worker']}: {each['pinned_to_device_bytes_per_s'] / 1e9:.1f} GB/s")
    _overheads(client)


def _run(client: Client, name: str, workers: Any = None, **values: Any) -> execution.RunResult:
    return execution.execute(client, presets.get(name), values, backend="cupy", workers=workers)


def _row(what: str, ours_s: float, other_s: float) -> None:
    print(f"  {what:<54}{ours_s:10.4f} s {other_s:10.4f} s {other_s / ours_s:7.2f} ×", flush=True)


def _scaling(client: Client, count: int, rows: int, all_s: float) -> None:
    """Print how svd grows with the GPUs, the same rows on each."""
    names = [str(w["name"]) for w in client.scheduler_info(n_workers=-1)["workers"].values()]
    one_s = measure(lambda: _run(client, "svd", workers=sorted(names)[:1], rows=rows))
    print(f"  svd from 1 to {count} GPUs, {rows:,} rows each: efficiency {one_s / all_s:.2f}")


def _overheads(client: Client) -> None:
    """Print what a warm run takes with next to nothing to compute."""
    for name, values in {"random-sum": {"size": 1000}, "smoke": {}, "mean": {"rows": 1000}}.items():
        elapsed_s = measure(lambda n=name, v=values: _run(client, n, **v), 5)  # type: ignore[misc]
        print(f"  a warm {name} of next to nothing: {elapsed_s:.3f} s")


def _limit_s(client: Client, numbers: float) -> float:
    """Return the time in which one GPU draws and adds so many numbers with cuRAND alone."""
    address = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    return float(client.submit(draw_and_add, numbers, workers=[address], pure=False).result())


def draw_and_add(numbers: float) -> float:
    """Run on a worker: cuRAND's Philox normals, added in registers."""
    import cupy as cp
    import numpy as np

    include = f"-I{os.environ.get('CUDA_PATH', '/usr/local/cuda')}/include"
    kernel = cp.RawKernel(LIMIT, "limit", options=("--std=c++17", include), backend="nvcc")
    blocks, threads = 132 * 64, 256
    sums, pairs = cp.empty(blocks * threads), round(numbers / (2 * blocks * threads))
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    kernel((blocks,), (threads,), (sums, np.int64(1)))
    start.record()
    kernel((blocks,), (threads,), (sums, np.int64(pairs)))
    stop.record()
    stop.synchronize()
    return float(cp.cuda.get_elapsed_time(start, stop) / 1e3)


LIMIT = r"""
#include <curand_kernel.h>
extern "C" __global__ void limit(double* sums, long long pairs) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(0, thread, 0, &state);
    double sum = 0;
    for (long long i = 0; i < pairs; ++i) {
        const double2 z = curand_normal2_double(&state);
        sum += z.x + z.y;
    }
    sums[thread] = sum;
}
"""


# On CPUs


def on_cpus() -> None:
    """Print svd, random-sum and mean against the same expression with NumPy on Dask's threads."""
    import dask
    import dask.array as da

    def random_sum(size: int, chunk: int) -> Any:
        x = da.random.default_rng(0).normal(10, 1, size=(size, size), chunks=chunk)
        return (x + 1)[::2, ::2].sum().compute()

    def mean(rows: int, cols: int) -> Any:
        return da.random.default_rng(0).random((rows, cols), chunks=(25_000, cols)).mean().compute()

    def svd(rows: int, cols: int) -> Any:
        chunk = rows // (os.cpu_count() or 1)
        x = da.random.default_rng(0).random((rows, cols), chunks=(chunk, cols))
        return da.linalg.svd(x)[1].compute()

    with dask.config.set(scheduler="threads"):
        peer = {
            "random-sum": measure(lambda: random_sum(16_000, 2_000)),
            "mean": measure(lambda: mean(10_000_000, 100)),
            "svd": measure(lambda: svd(400_000, 200)),
        }
    values: dict[str, dict[str, Any]] = {
        "random-sum": {"size": 16_000},
        "mean": {"rows": 10_000_000, "cols": 100},
        "svd": {"rows": 400_000, "cols": 200},
    }
    with LocalCluster(threads_per_worker=1, dashboard_address=":0") as local, Client(local) as c:
        for name, given in values.items():
            preset = presets.get(name)
            ours_s = measure(lambda p=preset, g=given: execution.execute(c, p, g))  # type: ignore[misc]
            _row(f"{name}, against Dask's threads", ours_s, peer[name])


if __name__ == "__main__":
    main()
