"""CuPy in a worker: a memory pool with a limit that spills before it fails, and arrays on the wire.

Imported where CuPy is, and not before: it is what makes the worker's arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from distributed.protocol.serialize import dask_deserialize, dask_serialize

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


def send_without_numba() -> None:
    """Let Dask send CuPy arrays where neither Numba nor RMM is installed.

    The header is what `distributed.protocol.cupy` (2026.8) writes and reads, so that either end
    may be without gputui.
    """

    @dask_serialize.register(cupy.ndarray)  # type: ignore[untyped-decorator]
    def serialize(array: Any) -> tuple[dict[str, Any], list[memoryview]]:
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = cupy.ascontiguousarray(array)
        header = array.__cuda_array_interface__.copy()
        header["strides"] = tuple(array.strides)
        flat = cupy.ndarray((array.nbytes,), np.uint8, array.data)
        return header, [memoryview(cupy.asnumpy(flat))]

    @dask_deserialize.register(cupy.ndarray)  # type: ignore[untyped-decorator]
    def deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
        flat = cupy.asarray(np.asarray(memoryview(frames[0]).cast("B")))
        return cupy.ndarray(
            header["shape"], header["typestr"], flat.data, strides=header["strides"]
        )
