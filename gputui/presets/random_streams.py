"""Uniform random matrices that are the same on any device, any workers and in any chunks.

Element (i, j) of the matrix with this seed is that of
`numpy.random.default_rng(seed).random((rows, cols))`: PCG64 can jump to any place of its
stream, so a task draws the block it needs, and the kernel for CuPy computes the same generator
in registers. Source: PCG64 (XSL-RR, 128-bit state), M. E. O'Neill, "PCG: A Family of Simple Fast
Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014, and NumPy's
`next_double`.
"""

import math
from functools import cache
from typing import Any

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
THREADS = 1 << 18  # of a launch: enough to fill a GPU, few enough that each draws many numbers

Rows = tuple[int, int]  # the first one, and the one after the last


def cut(span: Rows, pieces: int) -> list[Rows]:
    """Cut a span into at most so many of nearly one length.

    >>> cut((0, 5), 2)
    [(0, 3), (3, 5)]
    """
    first, end = span
    length = math.ceil((end - first) / pieces)
    return [(start, min(start + length, end)) for start in range(first, end, length)]


def draw(
    backend: str,
    seed: int,
    cols: int,
    rows: Rows,
    dtype: str = "float64",
    columns: Rows | None = None,
    out: Any = None,
) -> Any:
    """Return these rows of the matrix (of these columns only) as (n, m), uniform in [0, 1).

    NumPy draws whole rows into `out`, float64 of at least as many rows, where that is given.
    """
    columns = columns or (0, cols)
    if backend == "cupy":
        return _draw_cupy(seed, cols, rows, columns, dtype)
    import numpy as np

    height, width = rows[1] - rows[0], columns[1] - columns[0]
    block = np.empty((height, width)) if out is None else out[:height]
    bits = np.random.PCG64(seed)
    bits.advance(rows[0] * cols + columns[0])
    generator = np.random.Generator(bits)
    for part in [block] if width == cols else block:
        generator.random(out=part)
        bits.advance(cols - width)
    return block.astype(dtype, copy=False)


def _draw_cupy(seed: int, cols: int, rows: Rows, columns: Rows, dtype: str) -> Any:
    import cupy as cp
    import numpy as np

    height, width = rows[1] - rows[0], columns[1] - columns[0]
    block = cp.empty((height, width), dtype=dtype)
    if block.size == 0:
        return block
    state = np.random.PCG64(seed).state["state"]
    step_rows = max(1, min(height, THREADS // width))
    jump = _jump(step_rows * cols, state["inc"])
    grid = ((step_rows * width + 255) // 256,)
    arguments = (
        block,
        np.int64(height),
        np.int64(width),
        np.int64(step_rows),
        np.int64(cols),
        np.uint64(rows[0] * cols + columns[0] + 1),
        *_words(state["state"]),
        *_words(jump[0]),
        *_words(jump[1]),
        cp.asarray(_powers(state["inc"])),
    )
    _kernel(np.dtype(dtype).name)(grid, (256,), arguments)
    return block


def _jump(steps: int, increment: int) -> tuple[int, int]:
    """Return (a, c) so that `a * state + c` is the state after so many steps.

    A step is `MULTIPLIER * state + increment`, so c is a geometric series.

    >>> _jump(1, 5) == (MULTIPLIER, 5)
    True
    """
    a = pow(MULTIPLIER, steps, 2**128 * (MULTIPLIER - 1))
    c = (a - 1) // (MULTIPLIER - 1) * increment
    return a % 2**128, c % 2**128


def _words(value: int) -> tuple[Any, Any]:
    import numpy as np

    return np.uint64(value >> 64), np.uint64(value % 2**64)


@cache
def _powers(increment: int) -> Any:
    """Return the jumps over 1, 2, 4, … steps as (64, 4) uint64: a high, a low, c high, c low."""
    import numpy as np

    rows = [[*_words(a), *_words(c)] for a, c in (_jump(1 << k, increment) for k in range(64))]
    return np.array(rows, dtype=np.uint64)


@cache
def _kernel(dtype: str) -> Any:
    """Compile the kernel once a process."""
    import cupy as cp

    code = _SOURCE.replace("REAL", "double" if dtype == "float64" else "float")
    return cp.RawKernel(code, "draw_uniform", options=("--std=c++17", "--device-int128"))


_SOURCE = r"""
typedef unsigned __int128 state_t;

__device__ inline state_t wide(unsigned long long high, unsigned long long low) {
    return ((state_t)high << 64) | low;
}

// A thread draws one column of every `step_rows`-th row: one 128-bit jump from each to the next.
extern "C" __global__ void draw_uniform(
    REAL* block, long long height, long long width, long long step_rows, long long cols,
    unsigned long long first, unsigned long long state_high, unsigned long long state_low,
    unsigned long long a_high, unsigned long long a_low,
    unsigned long long c_high, unsigned long long c_low, const unsigned long long* powers)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= step_rows * width) return;
    const long long column = thread % width;
    long long row = thread / width;

    state_t state = wide(state_high, state_low);
    unsigned long long steps = first + row * cols + column;
    for (int k = 0; steps; ++k, steps >>= 1)
        if (steps & 1)
            state = state * wide(powers[4 * k], powers[4 * k + 1])
                  + wide(powers[4 * k + 2], powers[4 * k + 3]);

    const state_t a = wide(a_high, a_low), c = wide(c_high, c_low);
    for (; row < height; row += step_rows) {
        const unsigned long long high = state >> 64, mixed = high ^ (unsigned long long)state;
        const int turn = high >> 58;
        const unsigned long long bits = (mixed >> turn) | (mixed << (-turn & 63));
        block[row * width + column] = (REAL)((bits >> 11) * (1.0 / 9007199254740992.0));
        state = state * a + c;
    }
}
"""
