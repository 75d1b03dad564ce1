from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest
from distributed import Client

from gputui import presets
from gputui.errors import RunError
from gputui.presets import Machine
from gputui.presets.job import Job
from gputui.presets.svd import Decomposition, decompose_gram, decompose_tsqr


def reference(rows: int, cols: int, seed: int = 0) -> Any:
    """Return the singular values that NumPy finds for a preset's data."""
    return np.linalg.svd(np.random.default_rng(seed).random((rows, cols)), compute_uv=False)


@pytest.mark.parametrize("method", ["auto", "gram", "tsqr"])
def test_singular_values_are_those_of_numpy(execute: Any, method: str) -> None:
    result = execute("svd", rows=2000, cols=60, method=method, top=60, seed=3).result
    expected = reference(2000, 60, 3)
    np.testing.assert_allclose(result["singular_values"], expected, rtol=1e-10)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (50, 50), (30, 200), (7, 1), (301, 300)])
@pytest.mark.parametrize("method", ["gram", "tsqr"])
def test_any_shape_is_decomposed(execute: Any, shape: tuple[int, int], method: str) -> None:
    rows, cols = shape
    result = execute("svd", rows=rows, cols=cols, method=method, top=500, check="true").result
    expected = np.linalg.svd(
        np.random.default_rng(0).random((max(shape), min(shape))), compute_uv=False
    )
    np.testing.assert_allclose(result["singular_values"], expected, rtol=1e-10)
    assert result["residual"] < 1e-12
    assert result["orthogonality"] < 1e-12


@pytest.mark.parametrize("chunk_rows", [1, 17, 300, 5000])
def test_any_chunk_gives_the_same_result(execute: Any, chunk_rows: int) -> None:
    result = execute("svd", rows=300, cols=20, chunk_rows=chunk_rows).result
    np.testing.assert_allclose(result["singular_values"], reference(300, 20)[:10], rtol=1e-12)


def test_float32_data_are_decomposed_in_double_precision(execute: Any) -> None:
    x = np.random.default_rng(0).random((400, 30)).astype("float32")
    result = execute("svd", rows=400, cols=30, dtype="float32", method="gram").result
    expected = np.linalg.svd(x.astype("float64"), compute_uv=False)
    np.testing.assert_allclose(result["singular_values"], expected[:10], rtol=1e-10)


def test_kept_vectors_rebuild_the_matrix(execute: Any) -> None:
    arrays = execute("svd", rows=400, cols=30, keep_arrays=True).arrays
    u, s, v = np.asarray(arrays["u"].compute()), arrays["s"], np.asarray(arrays["v"])
    np.testing.assert_allclose(
        (u * s) @ v.T, np.random.default_rng(0).random((400, 30)), atol=1e-12
    )


def test_a_chunk_larger_than_a_worker_is_refused_with_one_that_fits(execute: Any) -> None:
    with pytest.raises(RunError, match=r"would take .* GiB .*\n  use chunk_rows ≤ [\d,]+"):
        execute("svd", rows=10_000_000, cols=1000, chunk_rows=10_000_000)


# Data that are not what the preset draws, given to the methods themselves.


@pytest.fixture
def decompose(client: Client) -> Callable[[Any, str], Decomposition | None]:
    job = Job(client, "numpy", (), {"seed": 0}, {}, False, lambda progress: None, Event())

    def _decompose(x: Any, method: str) -> Decomposition | None:
        if method == "tsqr":
            import dask.array as da

            return decompose_tsqr(job, da.from_array(x, chunks=(len(x) // 3, -1)), True)
        blocks: Sequence[Any] = np.array_split(x, 3)
        return decompose_gram(job, [[each] for each in blocks], [[len(b)] for b in blocks], True)

    return _decompose


def conditioned(condition: float) -> Any:
    """Return a matrix (600, 40) whose singular values fall from 1 to 1 / condition."""
    stream = np.random.default_rng(1)
    u, _ = np.linalg.qr(stream.normal(size=(600, 40)))
    v, _ = np.linalg.qr(stream.normal(size=(40, 40)))
    return (u * np.logspace(0, -np.log10(condition), 40)) @ v.T


def assert_right(x: Any, found: Decomposition) -> None:
    u, s, vt = np.asarray(found.u.compute()), found.s, np.asarray(found.vt)
    expected = np.linalg.svd(x, compute_uv=False)
    np.testing.assert_allclose(s, expected, rtol=1e-10, atol=1e-13 * expected[0])
    assert np.linalg.norm(u.T @ u - np.eye(u.shape[1])) < 1e-12
    assert np.linalg.norm(x - (u * s) @ vt) <= 1e-12 * np.linalg.norm(x)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e12])
def test_ill_conditioned_matrices_are_right_or_left_to_tsqr(
    decompose: Any, condition: float
) -> None:
    x = conditioned(condition)
    found = decompose(x, "gram")
    assert (found is None) == (condition > 1e2)
    assert_right(x, found or decompose(x, "tsqr"))


@pytest.mark.parametrize("what", ["a repeated column", "a column of zeros", "all zeros"])
def test_rank_deficient_matrices_are_right_or_left_to_tsqr(decompose: Any, what: str) -> None:
    x = conditioned(10)
    x[:, 7] = x[:, 3] if what == "a repeated column" else 0
    if what == "all zeros":
        x[:] = 0
    assert_right(x, decompose(x, "gram") or decompose(x, "tsqr"))


def test_vectors_that_are_to_be_saved_count_in_the_estimate() -> None:
    preset = presets.get("svd")
    assert preset.estimate
    values = presets.parse(preset, {"rows": 1_000_000, "chunk_rows": 1000}).complete("numpy")
    machine = Machine("numpy", workers=2, threads=2, smallest_bytes=2**34)
    without = preset.estimate(values, machine).peak_bytes
    with_u = preset.estimate(values, replace(machine, keeps_arrays=True)).peak_bytes
    assert with_u - without == 500_000 * 1_000 * 8
