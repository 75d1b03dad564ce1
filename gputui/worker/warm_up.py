"""What a first run would wait for: kernels compiled into CuPy's cache, CUDA's libraries loaded.

On an H200 an SVD's first run took 7 s longer than its second on a machine that had never run
CuPy, and 0.5 s longer where the kernels were compiled already.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

DTYPES = ("float64", "float32")


def steps() -> Iterator[Callable[[], object]]:
    """Yield what most programs do first; each takes up to a second where nothing is cached."""
    import cupy

    for dtype in DTYPES:
        x = cupy.eye(8, dtype=dtype)
        for work in (_arithmetic, _reductions, _random, _factorizations):
            yield partial(work, cupy, x)


def _arithmetic(cp: Any, x: Any) -> None:
    for result in (x + 1, x - x, x * x, x / 2, x > 0, abs(x), cp.sqrt(x), x[::2, ::2].copy()):
        del result


def _reductions(cp: Any, x: Any) -> None:
    for reduced in (cp.sum, cp.mean, cp.min, cp.max, cp.std):
        reduced(x)
        reduced(x, axis=0)
    cp.triu(x)[cp.triu_indices(len(x))]


def _random(cp: Any, x: Any) -> None:
    state = cp.random.RandomState(0)
    state.normal(10, 1, size=x.shape, dtype=x.dtype)
    state.random_sample(size=x.shape, dtype=x.dtype)


def _factorizations(cp: Any, x: Any) -> None:
    linalg = cp.linalg
    for work in (linalg.norm, linalg.cholesky, linalg.inv, linalg.eigh, linalg.qr, linalg.svd):
        work(x @ x)
