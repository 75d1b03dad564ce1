"""What the kernels and matrix steps of the presets take on one GPU, without Dask around them.

    python -m tests.benchmarks.kernels

Each line is the median of a few runs between CUDA events, with the variants that were tried
beside the one that the presets use, and the rate in the unit of the work.
"""

import os
import statistics
from collections.abc import Callable
from pathlib import Path

import cupy as cp
import numpy as np
from cupy import cublas

from gputui.presets import cholesky_qr as qr
from gputui.presets import random_streams, random_sum

REPEATS = 5


def measure(call: Callable[[], object]) -> float:
    """Return the median time of a call in seconds, after one that warms it up."""
    call()
    times = []
    for _ in range(REPEATS):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop) / 1e3)
    return statistics.median(times)


def show(what: str, call: Callable[[], object], work: float = 0, unit: str = "") -> None:
    """Print one line of the table."""
    elapsed_s = measure(call)
    rate = f"{work / elapsed_s:12.4g} {unit}/s" if work else ""
    print(f"{what:<58}{elapsed_s * 1e3:10.3f} ms {rate}", flush=True)


def random_numbers() -> None:
    """Print how fast normal and uniform numbers are drawn."""
    tiles = 10_000
    numbers = tiles * random_sum.TILE**2
    size = 100 * random_sum.TILE
    show(
        "random-sum kernel, 10,000 tiles",
        lambda: random_sum.add_tiles("cupy", size, 0, (0, tiles)),
        numbers,
        "numbers",
    )
    limit(numbers)
    generator = cp.random.Generator(cp.random.XORWOW(0))
    x = cp.empty(10**8)
    show(
        "CuPy XORWOW standard_normal, 1e8, drawn only",
        lambda: generator.standard_normal(out=x),
        1e8,
        "numbers",
    )
    show(
        "uniform stream, 100,000 x 1,000",
        lambda: random_streams.draw("cupy", 0, 1000, (5, 100_005)),
        1e8,
        "numbers",
    )
    show("CuPy XORWOW random, 1e8", lambda: generator.random(out=x), 1e8, "numbers")
    drawn = random_streams.draw("cupy", 7, 300, (11, 5000)).get()
    assert (drawn == random_streams.draw("numpy", 7, 300, (11, 5000))).all(), "streams differ"
    part = random_streams.draw("cupy", 7, 300, (11, 5000), columns=(3, 77)).get()
    assert (part == drawn[:, 3:77]).all(), "blocks differ"
    split = [random_sum.add_tiles("cupy", 5000, 3, r) for r in ((0, 7), (7, 25))]
    whole = random_sum.add_tiles("cupy", 5000, 3, (0, 25))
    assert [a + b for a, b in zip(*split, strict=True)] == list(whole), "tiles differ"


def matrices(rows: int = 262_144, n: int = 1000) -> None:
    """Print what the steps of a Cholesky-QR pass take."""
    x = random_streams.draw("cupy", 0, n, (0, rows))
    flops = 2.0 * rows * n * n
    show("gemm x.T @ x", lambda: x.T @ x, flops, "flop")
    square = cp.zeros((n, n))
    show("syrk x.T x", lambda: cublas.syrk("T", x, out=square, beta=1.0), flops, "flop")
    for pieces in (2, 4):
        show(
            f"gemm of the upper {pieces} x {pieces} blocks",
            lambda p=pieces: _blocks(x, p),
            flops,
            "flop",
        )
    g = x.T @ x
    r = cp.linalg.cholesky(g).T.copy()
    show("solve", lambda: cp.linalg.solve(r.T, x.T).T, flops, "flop")
    inverse = cp.linalg.inv(r)
    show("x @ inverse", lambda: x @ inverse, flops, "flop")
    show("trsm", lambda: _trsm(x, r), flops, "flop")
    show("cholesky 1000", lambda: cp.linalg.cholesky(g))
    show("inv 1000", lambda: cp.linalg.inv(r))
    show("eigh 1000", lambda: cp.linalg.eigh(g))
    show("eigvalsh 1000", lambda: cp.linalg.eigvalsh(g))
    show("qr 1000", lambda: cp.linalg.qr(r))
    show("svd 1000", lambda: cp.linalg.svd(r))
    host = qr.to_host(cp.triu(g))
    show("triangle to device", lambda: cp.asarray(host))
    show("triangle to host", lambda: qr.to_host(cp.triu(g)))
    show("conclude, s only", lambda: qr.conclude([host], False, "cupy"))
    show("numpy eigh 1000 on the host", lambda: np.linalg.eigh(g.get()))
    show("numpy svd 1000 on the host", lambda: np.linalg.svd(r.get()))


LIMIT = r"""
#include <curand_kernel.h>
// What cuRAND's own device functions take to draw normal numbers and add them, in registers.
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


def limit(numbers: float) -> None:
    """Print what the same count of numbers takes with cuRAND in registers."""
    include = f"-I{Path(os.environ.get('CUDA_PATH', '/usr/local/cuda')) / 'include'}"
    kernel = cp.RawKernel(LIMIT, "limit", options=("--std=c++17", include), backend="nvcc")
    blocks, threads = 132 * 64, 256
    sums = cp.empty(blocks * threads)
    pairs = round(numbers / (2 * blocks * threads))
    show(
        "cuRAND's Philox normals added in registers",
        lambda: kernel((blocks,), (threads,), (sums, np.int64(pairs))),
        numbers,
        "numbers",
    )


def _blocks(x: cp.ndarray, pieces: int) -> list[cp.ndarray]:
    """Return the blocks of x.T @ x on and above its diagonal."""
    edges = [x.shape[1] * i // pieces for i in range(pieces + 1)]
    return [x[:, edges[i] : edges[i + 1]].T @ x[:, edges[i] :] for i in range(pieces)]


def _trsm(x: cp.ndarray, r: cp.ndarray) -> cp.ndarray:
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(r.T, x.T, lower=True).T


def products(n: int = 8192) -> None:
    """Print the rates of cuBLAS."""
    for dtype in ("float64", "float32"):
        a = random_streams.draw("cupy", 0, n, (0, n), dtype)
        out = cp.empty_like(a)
        show(
            f"cuBLAS {dtype} {n}", lambda a=a, out=out: cp.matmul(a, a, out=out), 2.0 * n**3, "flop"
        )


def copies(size: int = 2**30) -> None:
    """Print the rates of host-to-device copies."""
    device = cp.empty(size, dtype=cp.uint8)
    pageable = np.ones(size, dtype=np.uint8)
    show("copy to the device, pageable", lambda: device.set(pageable), size, "B")
    memory = cp.cuda.alloc_pinned_memory(size)
    pinned = np.frombuffer(memory, np.uint8, size)
    show("copy to the device, pinned", lambda: device.set(pinned), size, "B")
    show("copy from the device, pinned", lambda: device.get(out=pinned), size, "B")


if __name__ == "__main__":
    properties = cp.cuda.runtime.getDeviceProperties(0)
    print(properties["name"].decode(), "CuPy", cp.__version__, "NumPy", np.__version__)
    random_numbers()
    matrices()
    products()
    copies()
