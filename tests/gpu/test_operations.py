"""The operations of dask-cuda's benchmark `local_cupy`, and what else cuts arrays anew.

On a cluster of this machine's GPUs, with Dask's defaults; each result is compared with NumPy's.
`python -m tests.gpu` runs them on one GPU, on two, and without a cluster.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from gputui.presets import to_host

pytestmark = pytest.mark.skipif(
    not Path("/dev/nvidia0").exists(), reason="this machine has no NVIDIA GPU"
)
SIZE, CHUNK, SEED = 4_000, 1_000, 7
LENGTH, PIECE = 40_000_000, 5_000_000

OnSquare = Callable[[Any, Any], Any]
"""The namespace (dask.array or numpy) and its array → a result."""

SQUARE: dict[str, OnSquare] = {
    "sum": lambda xp, x: x.sum(),
    "mean": lambda xp, x: x.mean(),
    "mean of columns": lambda xp, x: x.mean(axis=0),
    "transpose sum": lambda xp, x: (x + x.T).sum(),
    "dot": lambda xp, x: x.dot(x.T),
    "fft": lambda xp, x: abs(xp.fft.fft(x.rechunk((-1, CHUNK)) if xp is da else x, axis=0)),
    "slice": lambda xp, x: x[::3].copy(),
    "slice by lists": lambda xp, x: x[[5, 3999, 17, 2000, 17]][:, [0, 3000]],
    "rechunk": lambda xp, x: x.rechunk((SIZE, 250)) * 2 if xp is da else x * 2,
    "reshape": lambda xp, x: x.reshape(SIZE // CHUNK, CHUNK, SIZE).sum(axis=0),
    "largest": lambda xp, x: da.topk(x.ravel(), 100) if xp is da else np.sort(x.ravel())[:-101:-1],
    "overlap": lambda xp, x: xp.gradient(x, axis=0),
}
LINE: dict[str, Callable[[Any, Any], Any]] = {
    "column sum": lambda x, y: x + y,
    "column mask": lambda x, y: x[y > 0.9],
    "column gather": lambda x, y: x[(y[:1_000_000] * LENGTH).astype("i8")],
}


def drawn(shape: tuple[int, ...], chunks: Any, seed: int = SEED) -> Any:
    import cupy

    random = da.random.RandomState(seed, RandomState=cupy.random.RandomState)
    return random.random(shape, chunks=chunks).persist()


def on_host(result: Any) -> Any:
    """Return a Dask array's value, from the devices."""
    return to_host(result.compute())


@pytest.mark.parametrize("name", SQUARE)
def test_an_operation_on_a_matrix_gives_what_numpy_gives(client: Any, name: str) -> None:
    x = drawn((SIZE, SIZE), CHUNK)
    expected = SQUARE[name](np, on_host(x))
    np.testing.assert_allclose(on_host(SQUARE[name](da, x)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LINE)
def test_an_operation_on_columns_gives_what_numpy_gives(client: Any, name: str) -> None:
    x, y = (drawn((LENGTH,), PIECE, seed) for seed in (SEED, SEED + 1))
    expected = LINE[name](on_host(x), on_host(y))
    np.testing.assert_array_equal(on_host(LINE[name](x, y)), expected)


def test_a_shuffled_array_has_its_rows_where_they_are_wanted(client: Any) -> None:
    x = drawn((SIZE, 100), (CHUNK, 100))
    order = np.random.default_rng(SEED).permutation(SIZE)
    shuffled = da.shuffle(x, [part.tolist() for part in np.split(order, 4)], axis=0)
    np.testing.assert_array_equal(on_host(shuffled), on_host(x)[order])


def test_a_singular_value_decomposition_gives_the_matrix_again(client: Any) -> None:
    x = drawn((40_000, 200), (10_000, 200))
    u, s, v = da.linalg.svd(x)
    again = (u * s) @ v
    np.testing.assert_allclose(on_host(again), on_host(x), rtol=1e-9, atol=1e-9)
