"""How fast arrays move between workers, next to Dask's own clusters: one table.

    python -m tests.benchmarks.transfers                      # on this machine's GPUs
    python -m tests.benchmarks.transfers --host               # NumPy between two workers on CPUs
    python -m tests.benchmarks.transfers --peers FOLDER       # where dask-cuda, ucxx and rmm are

Sides: gputui, gputui with `gputui.transfers: bytes`, LocalCUDACluster over tcp, and over ucx
with an RMM pool. Each is a process of its own. Arrays are fresh, since what has moved stays where
it went. Figures are medians of five after a first one, of two for the sides that send bytes. The
expressions are those of dask-cuda's benchmark `local_cupy`.
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

SIDES = ("gputui", "bytes", "tcp", "ucx")
REPEATS = 5
SLOW_REPEATS = 2
"""Of the sides that send bytes."""
BOUND_S = 400
MIB = 2**20
PAIRS_MIB = (1, 16, 128, 2048)
HOST_MIB = (1, 4, 16, 64, 256)
SVD_ROWS = 4_000_000
N, M = 40_000, 20_000
COPY_MIB, COPIES = 1024, 10
EXPRESSIONS = (f"(x + x.T).sum(), {N:,}²", f"(x @ x).sum(), {M:,}²", f"rechunk and fft, {M:,}²")
SVD = f"svd, {SVD_ROWS:,} × 1,000"

BARS: dict[str, dict[str, float]] = {
    **{f"CuPy, {size:,} MiB, pair": {"ucx": 1.0} for size in PAIRS_MIB[1:]},
    **{f"CuPy, {size:,} MiB, pair, first": {"ucx": 0.8} for size in PAIRS_MIB[1:]},
    **{name: {"ucx": 1 / 0.85, "tcp": 10.0} for name in EXPRESSIONS},
    SVD: {"tcp": 1.1},
    "NumPy, 256 MiB, pair": {"bytes": 3.0},
}
"""Row → how many times as fast as a side gputui is to be."""


def main() -> None:
    """Run every side, or be one of them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--peers", metavar="FOLDER")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        global REPEATS
        REPEATS = SLOW_REPEATS if options.side in ("tcp", "bytes") else REPEATS
        be(options.side, on_host=options.host)
        return
    sides = [side for side in options.sides.split(",") if side in SIDES]
    if options.host:
        sides = sides[:2]
    elif not options.peers:
        sides = [side for side in sides if side in ("gputui", "bytes")]
    if not options.host:
        show_copies()
    show(sides, [measured(side, options) for side in sides])


def measured(side: str, options: argparse.Namespace) -> dict[str, str]:
    """Run a side in a process of its own; return what it measured, by row."""
    environ = dict(os.environ)
    if side in ("tcp", "ucx"):
        environ["PYTHONPATH"] = options.peers
    if side == "bytes":
        environ["DASK_GPUTUI__TRANSFERS"] = "bytes"
    command = [sys.executable, __file__, "--side", side, *(["--host"] if options.host else [])]
    try:
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, timeout=BOUND_S)
        lines = done.stdout
    except subprocess.TimeoutExpired as expired:
        lines = expired.stdout or b""
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith(b'["')]
    return dict(rows)


def show(sides: list[str], columns: list[dict[str, str]]) -> None:
    """Print one row for each thing that was measured, and how it stands to its bars."""
    names = list(dict.fromkeys(name for column in columns for name in column))
    print("| what |", " | ".join(sides), "| bars |\n|---|", "---|" * (len(sides) + 1), sep="")
    for name in names:
        cells = dict(zip(sides, (column.get(name, "–") for column in columns), strict=True))
        bars = (
            f"{times_as_fast(cells['gputui'], cells[side]):.2f} × {side} (bar {bar:.2f})"
            for side, bar in BARS.get(name, {}).items()
            if side in sides
        )
        print(f"| {name} |", " | ".join(cells.values()), "|", "; ".join(bars), "|")


def times_as_fast(ours: str, theirs: str) -> float:
    """Return how many times as fast the first is; not a number where one failed.

    >>> times_as_fast("90 GB/s", "100 GB/s"), times_as_fast("0.5 s", "1.0 s")
    (0.9, 2.0)
    """
    try:
        (one, unit), (other, _) = ours.split(" "), theirs.split(" ")
        return float(other) / float(one) if unit == "s" else float(one) / float(other)
    except ValueError:
        return math.nan


def show_copies() -> None:
    """Print how fast one process copies from a handle of another, and how fast a card can."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    done = context.Event()
    owner = context.Process(target=own, args=(send, done))
    owner.start()
    opened = context.Pool(1).apply(copy_from, receive.recv())
    done.set()
    owner.join()
    limit = context.Pool(1).apply(copy_within)
    print(f"a copy of {COPY_MIB} MiB from an opened handle: {opened / 1e9:.0f} GB/s; cudaMemcpy")
    print(f"between the same devices: {limit / 1e9:.0f} GB/s; {opened / limit:.2f} (bar 0.80)\n")


def own(send: Any, done: Any) -> None:
    """Hold memory on the second GPU, and send its handle."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import cupy

    from gputui.worker.cuda import driver

    array = cupy.zeros(COPY_MIB * MIB, "u1")
    send.send((driver.export(driver.allocation(array.data.ptr)[0]),))
    done.wait()


def copy_from(handle: bytes) -> float:
    """Return the bytes per second of copies from a handle to the first GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    import cupy

    from gputui.worker.cuda import driver

    target = cupy.empty(COPY_MIB * MIB, "u1")
    source = driver.open(handle)
    return copies(lambda: driver.copy(target.data.ptr, source, target.nbytes), target.nbytes)


def copy_within() -> float:
    """Return the bytes per second of copies in one process that sees both."""
    import cupy

    with cupy.cuda.Device(1):
        source = cupy.zeros(COPY_MIB * MIB, "u1")
        cupy.cuda.Device().synchronize()
    target = cupy.empty(COPY_MIB * MIB, "u1")
    runtime = cupy.cuda.runtime
    with contextlib.suppress(runtime.CUDARuntimeError):
        runtime.deviceEnablePeerAccess(1)

    def copy() -> None:
        runtime.memcpy(target.data.ptr, source.data.ptr, target.nbytes, runtime.memcpyDefault)
        cupy.cuda.Device().synchronize()

    return copies(copy, target.nbytes)


def copies(copy: Callable[[], object], size: int) -> float:
    copy()
    times = []
    for _ in range(COPIES):
        started = time.perf_counter()
        copy()
        times.append(time.perf_counter() - started)
    return size / statistics.median(times)


def be(side: str, *, on_host: bool) -> None:
    """Be one side: measure, and print a row of JSON for each thing."""
    from distributed import Client

    with cluster(side, on_host=on_host) as one, Client(one) as client:
        client.wait_for_workers(2)
        for row in host_rows(client) if on_host else device_rows(client, pairs=side == "bytes"):
            print(json.dumps(row), flush=True)
            print(side, *row, file=sys.stderr, flush=True)


def cluster(side: str, *, on_host: bool) -> Any:
    """Start the side's cluster."""
    if side in ("gputui", "bytes"):
        from gputui import GPUCluster

        hosts = "localhost gpus=none workers=2 nthreads=1 memory=4GiB" if on_host else None
        return GPUCluster(hosts)
    from dask_cuda import LocalCUDACluster

    pool = {"rmm_pool_size": 0.8, "rmm_allocator_external_lib_list": "cupy"}
    more = {"protocol": "ucx", **pool} if side == "ucx" else {}
    return LocalCUDACluster(dashboard_address=":0", memory_limit=None, **more)


def host_rows(client: Any) -> Iterator[tuple[str, str]]:
    """Measure NumPy arrays between two workers."""
    for size in HOST_MIB:
        yield from rates(client, "NumPy", size)


def device_rows(client: Any, *, pairs: bool) -> Iterator[tuple[str, str]]:
    """Measure CuPy arrays, one and many; or pairs alone."""
    import cupy
    import dask
    import dask.array as da

    dask.config.set({"array.rechunk.method": "tasks"})
    random = da.random.RandomState(RandomState=cupy.random.RandomState)
    client.submit(lambda: float(cupy.ones(8).sum())).result()
    for size in PAIRS_MIB:
        yield from rates(client, "CuPy", size)
    if pairs:
        return
    works: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        EXPRESSIONS[0]: (
            lambda: random.random((N, N), chunks=5_000),
            lambda x: (x + x.T).sum().compute(),
        ),
        EXPRESSIONS[1]: (
            lambda: random.random((M, M), chunks=5_000),
            lambda x: (x @ x).sum().compute(),
        ),
        EXPRESSIONS[2]: (
            lambda: random.random((M, M), chunks=(M // 8, M)),
            lambda x: abs(da.fft.fft(x.rechunk((M, M // 8)), axis=0)).sum().compute(),
        ),
        SVD: (
            lambda: random.random((SVD_ROWS, 1000), chunks=(SVD_ROWS // 16, 1000)),
            lambda x: da.linalg.svd(x)[1].compute(),
        ),
    }
    for name, (fresh, work) in works.items():
        yield name, seconds(fresh, work)


def rates(client: Any, library: str, size: int) -> Iterator[tuple[str, str]]:
    """Measure arrays of a size, made on one worker and used on another: the first and the rest."""
    from distributed import wait

    owner, reader = sorted(client.scheduler_info(n_workers=-1)["workers"])[:2]
    times = []
    for _ in range(REPEATS + 1):
        array = client.submit(_zeros, library.lower(), size, workers=[owner], pure=False)
        wait(array)
        started = time.perf_counter()
        client.submit(_size, array, workers=[reader], pure=False).result()
        times.append(time.perf_counter() - started)
        del array
        time.sleep(0.2)
    name = f"{library}, {size:,} MiB, pair"
    yield f"{name}, first", f"{size * MIB / times[0] / 1e9:.2f} GB/s"
    yield name, f"{size * MIB / statistics.median(times[1:]) / 1e9:.2f} GB/s"


def _zeros(library: str, size: int) -> Any:
    import importlib

    return importlib.import_module(library).zeros(size << 20, "u1")


def _size(array: Any) -> int:
    return int(array.nbytes)


def seconds(fresh: Callable[[], Any], work: Callable[[Any], Any]) -> str:
    """Return the seconds of work on fresh arrays, or how it fails."""
    from distributed import wait

    times = []
    for _ in range(REPEATS + 1):
        x = fresh().persist()
        wait(x)
        time.sleep(0.2)
        started = time.perf_counter()
        try:
            work(x)
        except Exception as error:
            return f"fails: {type(error).__name__}"
        times.append(time.perf_counter() - started)
        del x
        time.sleep(0.3)
    return f"{statistics.median(times[1:]):.3f} s"


if __name__ == "__main__":
    main()
