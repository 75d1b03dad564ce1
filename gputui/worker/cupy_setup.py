"""CuPy as a worker needs it: a pool that spills before it fails, generators that do not block.

Imported where CuPy is, and not before: it is what makes the worker's arrays.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import cupy
from cupy_backends.cuda.libs import curand
from dask.array.dispatch import concatenate_lookup

from gputui.worker.rmm_pool import ALIGNMENT, RmmOptions, use_rmm
from gputui.worker.transfers.cuda_ipc import AllocationOwner, allocations

POOL_SHARE = 0.95
"""Of the device's memory, for the pools of all its workers; the rest is CUDA's own."""

READERS_S = 5.0
"""For those who have memory mapped that the pool has given up."""


def use_pool(share: float, make_room: Callable[[], bool], options: RmmOptions) -> int:
    """Allocate from a pool of a share of the device; return how many bytes it may have.

    It is RMM's where that is installed, which cuDF uses, too, and CuPy's otherwise. An allocation
    that does not fit calls `make_room`, and is tried again for as long as that finds something.
    Raises ImportError where RMM is wanted and does not import.
    """
    _, total = cupy.cuda.Device().mem_info
    limit = int(total * POOL_SHARE * share) // ALIGNMENT * ALIGNMENT
    try:
        cupy.cuda.set_allocator(use_rmm(limit, total, make_room, options))
    except ImportError as error:
        if options != RmmOptions():
            raise
        if importlib.util.find_spec("rmm"):
            print(f"RMM does not import, so CuPy's own pool is used: {error}", flush=True)
        _use_cupy(limit, make_room)
    return limit


def _use_cupy(limit: int, make_room: Callable[[], bool]) -> None:
    """Make a pool that takes memory which others can map CuPy's default one."""
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
