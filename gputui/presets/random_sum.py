"""`(x + 1)[::2, ::2].sum()` of x normal(10, 1), 2 TB of it by default on GPUs, never held at once.

x is cut into fixed logical tiles of 1,024 × 1,024, each with a random stream of its own, and a
task does many of them: so on one backend a seed gives the same sum, to the last bit, on any number
of workers and however the tiles are shared out. Every number of x is drawn; the mean of all of
them comes out next to the strided sum and shows it. On CuPy one kernel draws (Philox 4x32-10 and
Box–Muller, in double precision), adds and sums in registers. NumPy draws other numbers (SFC64):
the sums of the two backends agree as two samples do, not bit for bit.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC11, for Philox and its constants.
"""

import math
import time
from collections.abc import Mapping
from functools import cache, partial
from itertools import chain
from typing import Any

from gputui.presets import Job, Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.random_streams import Rows, cut

TILE = 1024  # rows and columns of a logical tile; a seed's numbers depend on it
BAND = 64  # rows of a tile that NumPy draws at once, even: they stay in a core's cache
TILES_A_TASK = {"cupy": 2**16, "numpy": 2**6}  # half a second of a GPU, or of a core
THREADS = 256  # of a block of the kernel, which does one tile
MEAN = 10.0  # of x; its standard deviation is 1
SIZE = 500_000  # side of the published computation: 2 TB of float64


def compute(job: Job) -> Outcome:
    """Share the tiles out as a few tasks for each worker, and add up their partial sums."""
    size = job["size"]
    add = partial(add_tiles, job.backend, size, job["seed"])
    spans = cut((0, _tiles(size)), _tasks(job.parameters, job.machine))
    started = time.perf_counter()
    parts = job.results(job.map(add, spans), "drawing and adding")
    elapsed_s = time.perf_counter() - started
    strided, everything = (math.fsum(chain(*column)) for column in zip(*parts, strict=True))
    chosen = math.ceil(size / 2) ** 2
    expected = chosen * (MEAN + 1)
    return Outcome(
        {
            "sum": strided,
            "expected": expected,
            "standard_errors": (strided - expected) / math.sqrt(chosen),
            "numbers": size * size,
            "numbers_per_s": size * size / elapsed_s,
            "mean_of_all": everything / (size * size),
        }
    )


def _tiles(size: int) -> int:
    return math.ceil(size / TILE) ** 2


def _tasks(values: Mapping[str, Any], machine: Machine) -> int:
    tiles = _tiles(values["size"])
    return int(values["tasks"] or machine.tasks(tiles, TILES_A_TASK[machine.backend]))


def add_tiles(backend: str, size: int, seed: int, tiles: Rows) -> tuple[list[float], list[float]]:
    """Return for each tile the sum of its part of `(x + 1)[::2, ::2]`, and that of its x."""
    import numpy as np

    if backend == "cupy":
        return _add_tiles_cupy(size, seed, tiles)
    across = math.ceil(size / TILE)
    buffer = np.empty(BAND * TILE)
    strided, everything = [], []
    for tile in range(*tiles):
        height = min(TILE, size - tile // across * TILE)
        width = min(TILE, size - tile % across * TILE)
        own = np.random.SeedSequence(seed, spawn_key=(tile,))  # apart for seeds of any length
        stream = np.random.Generator(np.random.SFC64(own))
        strided.append(0.0)
        everything.append(0.0)
        for first in range(0, height, BAND):
            rows = min(BAND, height - first)
            x = stream.standard_normal(out=buffer[: rows * width]).reshape(rows, width)
            x += MEAN
            strided[-1] += float((x[::2, ::2] + 1).sum())
            everything[-1] += float(x.sum())
    return strided, everything


def _add_tiles_cupy(size: int, seed: int, tiles: Rows) -> tuple[list[float], list[float]]:
    import cupy as cp
    import numpy as np

    count = tiles[1] - tiles[0]
    sums = cp.empty((2, count))
    arguments = (sums, np.int64(size), np.uint64(seed), np.int64(tiles[0]), np.int64(count))
    kernel()((count,), (THREADS,), arguments)
    strided, everything = sums.get().tolist()
    return strided, everything


@cache
def kernel() -> Any:
    """Compile the kernel, once a process."""
    import cupy as cp

    constants = {"TILE": TILE, "THREADS": THREADS, "MEAN": MEAN}
    options = ("--std=c++17", *(f"-D{name}={value}" for name, value in constants.items()))
    return cp.RawKernel(_SOURCE, "add_tiles", options=options)


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    partial_sums = 64 * math.ceil(_tiles(values["size"]) / _tasks(values, machine))
    band = 0 if machine.backend == "cupy" else 14 * BAND * TILE  # measured: 13
    return Memory(peak_bytes=band + partial_sums, change="use a smaller size, or more tasks")


_SOURCE = r"""
struct Pair { double a, b; };

// Philox 4x32-10: 128 random bits that depend on (pair, tile) and the seed alone.
__device__ __forceinline__ uint4 philox(uint4 c, unsigned int k0, unsigned int k1) {
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned long long p0 = (unsigned long long)0xD2511F53u * c.x;
        const unsigned long long p1 = (unsigned long long)0xCD9E8D57u * c.z;
        c = make_uint4((unsigned int)(p1 >> 32) ^ c.y ^ k0, (unsigned int)p1,
                       (unsigned int)(p0 >> 32) ^ c.w ^ k1, (unsigned int)p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// A double in [1, 2) from 52 random bits: no conversion from integer, which is slow.
__device__ __forceinline__ double one_to_two(unsigned int high, unsigned int low) {
    return __hiloint2double(0x3ff00000 | (high >> 12), low);
}

// Two independent normal numbers by Box-Muller.
__device__ __forceinline__ Pair normals(uint4 bits) {
    const double u = one_to_two(bits.x, bits.y) - (1.0 - 1.0 / 9007199254740992.0);
    const double turns = one_to_two(bits.z, bits.w) - 1.0;
    const double radius = sqrt(-2.0 * log(u));
    double sine, cosine;
    sincospi(2.0 * turns, &sine, &cosine);
    return {radius * cosine, radius * sine};
}

// One block does one tile; a thread does two pairs of columns of every row.
extern "C" __global__ void __launch_bounds__(THREADS) add_tiles(
    double* sums, long long size, unsigned long long seed, long long first, long long count)
{
    const long long tile = first + blockIdx.x;
    const long long across = (size + TILE - 1) / TILE;
    const int height = (int)min((long long)TILE, size - tile / across * TILE);
    const int width = (int)min((long long)TILE, size - tile % across * TILE);
    const unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)(seed >> 32);
    const unsigned int t0 = (unsigned int)tile, t1 = (unsigned int)(tile >> 32);

    double strided = 0, everything = 0;
    for (int pair = threadIdx.x; 2 * pair < width; pair += THREADS) {
        const bool both = 2 * pair + 1 < width;
        #pragma unroll 2
        for (int row = 0; row < height; ++row) {
            const unsigned int place = row * (TILE / 2) + pair;
            const Pair z = normals(philox(make_uint4(place, t0, t1, 0), k0, k1));
            const double a = z.a + MEAN, b = z.b + MEAN;
            everything += a;
            if (both) everything += b;
            if (row % 2 == 0) strided += a + 1.0;
        }
    }

    __shared__ double partial[2][THREADS];
    partial[0][threadIdx.x] = strided;
    partial[1][threadIdx.x] = everything;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            partial[0][threadIdx.x] += partial[0][threadIdx.x + half];
            partial[1][threadIdx.x] += partial[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x < 2) sums[threadIdx.x * count + blockIdx.x] = partial[threadIdx.x][0];
}
"""

PRESET = Preset(
    name="random-sum",
    summary="(x + 1)[::2, ::2].sum() of normal numbers: 2 TB of them on GPUs, never held at once",
    parameters=(
        Parameter(
            "size",
            int,
            SIZE,
            "side of the square x; smaller by default on CPUs, where 2 TB take minutes to hours",
            cpu_default=20_000,
            minimum=1,
            maximum=10_000_000,
            unit="numbers",
        ),
        Parameter("seed", int, 0, "of the random streams", minimum=0, maximum=2**63 - 1),
        Parameter("tasks", int, None, "how many tasks; auto is four a thread or more", minimum=1),
    ),
    compute=compute,
    estimate=_estimate,
    units={"numbers_per_s": "/s"},
)
