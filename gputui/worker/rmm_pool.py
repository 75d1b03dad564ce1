"""RMM's memory as the resource of a worker's device: cuDF, cuML and CuPy allocate from it.

It can be imported without RMM, which is looked for when it is requested.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.config

from gputui.worker.memory import amount_bytes
from gputui.worker.transfers.cuda_ipc import allocations

ALIGNMENT = 256
"""Of the sizes of RMM's pools. Source: RMM, `PoolMemoryResource`."""

FIRST_BYTES = 2**30
"""Of RMM's pool, which grows: by default it takes half of the device at once."""


@dataclass(frozen=True, slots=True)
class RmmOptions:
    """A cluster's options of RMM."""

    pool_size: int | float | str | None = None
    """Initial size of the pool: bytes, text such as "8 GiB", or a share of the device."""
    stream_ordered: bool = False
    """Whether the driver keeps the pool: `cudaMallocAsync`."""

    @classmethod
    def configured(cls) -> RmmOptions:
        """Read Dask's configuration; raises ModuleNotFoundError without RMM."""
        size = dask.config.get("gputui.rmm-pool-size", None)
        options = cls(size, bool(dask.config.get("gputui.rmm-async", None)))
        if options != cls() and importlib.util.find_spec("rmm") is None:
            raise ModuleNotFoundError(
                f"rmm_pool_size and rmm_async need RMM, which {sys.executable} does not have; "
                "install rmm-cu12 or rmm-cu13 for it, or leave them out"
            )
        return options


def use_rmm(
    limit: int, total: int, make_room: Callable[[], bool], options: RmmOptions
) -> Callable[..., Any]:
    """Make RMM this device's resource, of up to `limit` of `total` bytes; return CuPy's allocator.

    Raises ImportError without RMM. Source: RMM's `rmm.mr`, 26.10.
    """
    import rmm
    from rmm import mr
    from rmm.allocators.cupy import rmm_cupy_allocator

    first = FIRST_BYTES
    if options.pool_size is not None:
        first = amount_bytes(options.pool_size, total) // ALIGNMENT * ALIGNMENT
    first = min(first, limit)
    if options.stream_ordered:
        pool = mr.CudaAsyncMemoryResource(initial_pool_size=first)
        source = mr.LimitingResourceAdaptor(pool, allocation_limit=limit)
    else:
        bounded = Bounded(limit)
        # Not `maximum_pool_size`: a pool with one takes half of what is left when it first grows,
        # and a reader of its arrays maps all of that at once: 0.5 s. Without, it doubles.
        source = mr.PoolMemoryResource(
            mr.CallbackMemoryResource(bounded.take, bounded.give_back), initial_pool_size=first
        )
    retrying = mr.FailureCallbackResourceAdaptor(source, lambda _: make_room())
    mr.set_current_device_resource(mr.StatisticsResourceAdaptor(retrying))
    if options.stream_ordered:
        rmm.DeviceBuffer(size=first)  # counts the peak, which is what the driver's pool keeps
    allocator: Callable[..., Any] = rmm_cupy_allocator
    return allocator


class Bounded:
    """Driver memory that other workers can map, up to a limit; the upstream resource of a pool."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int, stream: Any) -> int:
        """Return the address of new memory; raises MemoryError, and a pool then asks for less."""
        from cupy.cuda import runtime

        if size > self._left:
            raise MemoryError(f"{size} bytes are more than the {self._left} left for RMM's pool")
        try:
            base = int(runtime.malloc(size))
        except runtime.CUDARuntimeError as error:
            raise MemoryError(str(error)) from error
        self._left -= size
        allocations.add(base)
        return base

    def give_back(self, base: int, size: int, stream: Any) -> None:
        """Free memory once no reader has it mapped."""
        self._left += size
        allocations.give_back(base)
