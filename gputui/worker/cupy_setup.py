"""CuPy as a worker needs it: a pool that spills before it fails, generators that do not block.

Imported where CuPy is, and not before: it is what makes the worker's arrays.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import cupy
from cupy_backends.cuda.libs import curand
from dask.array.dispatch import concatenate_lookup

from gputui.worker.transfers.cuda_ipc import AllocationOwner, allocations

READERS_S = 5.0
"""For those who have memory mapped that the pool has given up."""


def use_cupys_pool(limit: int, make_room: Callable[[], bool]) -> None:
    """Make a pool that takes memory which others can map CuPy's default one.

    An allocation that does not fit calls `make_room`, and is tried again while that finds some.
    """
    pool = cupy.cuda.MemoryPool(_from_driver)
    pool.set_limit(size=limit)
    cupy._default_memory_pool = pool

    def allocate(size: int) -> Any:
        while True:
            try:
                return pool.malloc(size)
            except cupy.cuda.memory.OutOfMemoryError:
                if not (_wait_for_readers() or make_room()):
                    raise

    cupy.cuda.set_allocator(allocate)


def _from_driver(size: int) -> Any:
    base = cupy.cuda.runtime.malloc(size)
    owner = AllocationOwner(allocations, base)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(base, size, owner, 0), 0)


def _wait_for_readers() -> bool:
    """Wait for memory that readers are about to close, but not in the loop that asks them."""
    on_loop = threading.current_thread() is threading.main_thread()
    return not on_loop and allocations.wait(READERS_S)


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


def register_in_every_lookup() -> None:
    """Have `dask.array` find CuPy's functions, whichever it asks for first.

    Those that `empty_lookup` has, for percentiles, come with others only (dask 2026.7.1): on a
    worker that has used no other, `da.percentile` raises TypeError.
    """
    concatenate_lookup.dispatch(cupy.ndarray)
