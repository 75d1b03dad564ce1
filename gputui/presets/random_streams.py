"""Uniform random matrices that are the same on any device, any workers and in any chunks.

Element (i, j) of the matrix with this seed is that of
`numpy.random.default_rng(seed).random((rows, cols))`: PCG64 can jump to any place of its
stream, so a task draws the block it needs, and the kernel for CuPy computes the same generator
in registers. Source: PCG64 (XSL-RR, 128-bit state), M. E. O'Neill, "PCG: A Family of Simple Fast
Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014, and NumPy's
`next_double`.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_MASK_64 = 2**64 - 1
_MASK_128 = 2**128 - 1
_THREADS = 1 << 18
"""Threads of one launch: enough to fill a GPU, few enough that each draws many numbers."""

Rows = tuple[int, int]
"""First row, and the one after the last."""


def draw(backend: str, seed: int, cols: int, rows: Rows, dtype: str = "float64") -> Any:
    """Return rows of the matrix as (n, cols), uniform in [0, 1), on this worker's device."""
    return draw_block(backend, seed, cols, rows, (0, cols), dtype)


def draw_each(backend: str, seed: int, cols: int, spans: Sequence[Rows]) -> Iterator[Any]:
    """Yield the rows of each span in turn; what was yielded last is drawn over.

    With NumPy one buffer serves them all: a worker's allocator gives freed memory back at once,
    and taking new pages for each tile costs as much as drawing it.
    """
    if backend == "cupy":
        for span in spans:
            yield draw(backend, seed, cols, span)
        return
    import numpy as np

    buffer = np.empty((max(stop - start for start, stop in spans), cols))
    bits = np.random.PCG64(seed)
    generator, place = np.random.Generator(bits), 0
    for start, stop in spans:
        bits.advance(start * cols - place)
        yield generator.random(out=buffer[: stop - start])
        place = stop * cols


def draw_block(
    backend: str, seed: int, cols: int, rows: Rows, columns: Rows, dtype: str = "float64"
) -> Any:
    """Return a block of the matrix of `cols` columns as (n, m), uniform in [0, 1)."""
    if backend == "cupy":
        return _draw_cupy(seed, cols, rows, columns, dtype)
    return _draw_numpy(seed, cols, rows, columns).astype(dtype, copy=False)


def _draw_numpy(seed: int, cols: int, rows: Rows, columns: Rows) -> Any:
    import numpy as np

    bits = np.random.PCG64(seed)
    bits.advance(rows[0] * cols + columns[0])
    generator = np.random.Generator(bits)
    width = columns[1] - columns[0]
    if width == cols:
        return generator.random((rows[1] - rows[0], cols))
    block = np.empty((rows[1] - rows[0], width))
    for row in block:
        generator.random(out=row)
        bits.advance(cols - width)
    return block


def _draw_cupy(seed: int, cols: int, rows: Rows, columns: Rows, dtype: str) -> Any:
    import cupy as cp
    import numpy as np

    height, width = rows[1] - rows[0], columns[1] - columns[0]
    block = cp.empty((height, width), dtype=dtype)
    if block.size == 0:
        return block
    state = np.random.PCG64(seed).state["state"]
    step_rows = max(1, min(height, _THREADS // width))
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

    Source: F. B. Brown, "Random number generation with arbitrary strides", 1994.

    >>> _jump(1, 5) == (MULTIPLIER, 5)
    True
    """
    a, c = 1, 0
    step_a, step_c = MULTIPLIER, increment
    while steps:
        if steps & 1:
            a, c = a * step_a & _MASK_128, (c * step_a + step_c) & _MASK_128
        step_c = (step_a + 1) * step_c & _MASK_128
        step_a = step_a * step_a & _MASK_128
        steps >>= 1
    return a, c


def _words(value: int) -> tuple[Any, Any]:
    import numpy as np

    return np.uint64(value >> 64), np.uint64(value & _MASK_64)


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
