"""CuPy as a worker wants it: a pool that spills before it fails, generators that hold nobody up.

Imported where CuPy is, and not before: it is what makes the worker's arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy
from cupy_backends.cuda.libs import curand

POOL_SHARE = 0.95
"""Of the device's memory, for the pools of all its workers; the rest is CUDA's own."""

HELD_SHARE = 0.8
"""Of the pool, for what tasks leave in memory; the rest is what they need while they run."""


def limit_pool(share: float) -> int:
    """Limit CuPy's pool to a share of the device; return how many bytes tasks may leave there."""
    _, total = cupy.cuda.Device().mem_info
    limit = int(total * POOL_SHARE * share)
    cupy.get_default_memory_pool().set_limit(size=limit)
    return int(limit * HELD_SHARE)


def spill_before_failing(make_room: Callable[[], bool]) -> None:
    """Have an allocation that does not fit move what is held off the device, and try again."""
    pool = cupy.get_default_memory_pool()

    def allocate(size: int) -> Any:
        while True:
            try:
                return pool.malloc(size)
            except cupy.cuda.memory.OutOfMemoryError:
                if not make_room():
                    raise

    cupy.cuda.set_allocator(allocate)


def release_generators_without_gil() -> None:
    """Let the worker's loop run while cuRAND takes a generator apart.

    That waits for all that the generator still draws, and CuPy 14.2 holds the GIL meanwhile:
    with a `RandomState` a chunk, as Dask makes them, 4 ms in which no next task can be sent.
    """
    library = ctypes.CDLL("libcurand.so.10")

    def destroy(generator: int) -> None:
        status = library.curandDestroyGenerator(ctypes.c_void_p(generator))
        if status:
            raise curand.CURANDError(status)

    curand.destroyGenerator = destroy
