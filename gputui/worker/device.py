"""The GPU of a worker: its CUDA context, the pool that its libraries allocate from, its values.

The pool is RMM's where that is installed, for cuDF, cuML and CuPy, and CuPy's own otherwise.
Neither library is imported before there is a context.
"""

import asyncio
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import dask.config

from gputui.protocol.forking import ForkWorker
from gputui.worker.cuda import Staging, driver, open_device
from gputui.worker.memory import DeviceMemory, amount_bytes, held_bytes
from gputui.worker.transfers.cuda_ipc import allocations

LIMIT = "gputui.device-memory-limit"

POOL_SHARE = 0.95
"""Of the device's memory, for the pools of all its workers; the rest is CUDA's own."""

ALIGNMENT = 256
"""Of the sizes of RMM's pools. Source: RMM, `PoolMemoryResource`."""

FIRST_BYTES = 2**30
"""Of RMM's pool, which grows: by default it takes half of the device at once."""


class Device:
    """One GPU or MIG instance, of a worker that sees no other."""

    def __init__(self, order: ForkWorker, host_bytes: float) -> None:
        """Raises ModuleNotFoundError if RMM is requested and not installed."""
        self._order = order
        self.opened = asyncio.Event()
        """Set when tasks may run, also where there is no context: they will say so themselves."""
        self.uuid: str | None = None
        """UUID of the CUDA context's device; None without a context."""
        self.memory = DeviceMemory(order.scratch, host_bytes)
        self._pool_size = dask.config.get("gputui.rmm-pool-size", None)
        self._stream_ordered = bool(dask.config.get("gputui.rmm-async", None))
        self._needs_rmm = self._pool_size is not None or self._stream_ordered
        if self._needs_rmm and not _has("rmm"):
            raise ModuleNotFoundError(
                f"rmm_pool_size and rmm_async need RMM, which {sys.executable} does not have; "
                "install rmm-cu12 or rmm-cu13 for it, or leave them out"
            )

    async def make_context(self) -> None:
        """Make the CUDA context, in turn with the other workers of the host."""
        try:
            self.uuid = await asyncio.to_thread(open_device, self._order.lock)
        except OSError as error:
            print(f"CUDA: no context on {self._order.spec.device_uuid}: {error}", flush=True)

    async def open(self, context: asyncio.Task[None]) -> None:
        """Import what tasks use while the context is made, then set up CuPy."""
        try:
            await asyncio.to_thread(importlib.import_module, "dask.array")
            await context
            if self.uuid and _has("cupy"):
                await asyncio.to_thread(self._set_up_cupy)
        finally:
            self.opened.set()

    def _set_up_cupy(self) -> None:
        """Allocate from a pool of this worker's share of the device, and have arrays leave it.

        An allocation that does not fit moves values off the device, and is tried again for as long
        as there are some.
        """
        import cupy

        from gputui.engine import wire
        from gputui.worker import cupy_setup

        self.memory.settle, make_room = driver.synchronize, self.memory.make_room
        _, total = cupy.cuda.Device().mem_info
        limit = int(POOL_SHARE * self._order.spec.device_share * total) // ALIGNMENT * ALIGNMENT
        try:
            allocator = use_rmm(limit, total, make_room, self._pool_size, self._stream_ordered)
            cupy.cuda.set_allocator(allocator)
        except ImportError as error:
            if self._needs_rmm:
                raise
            if _has("rmm"):
                print(f"RMM does not import, so CuPy's own pool is used: {error}", flush=True)
            cupy_setup.use_cupys_pool(limit, make_room)
        self.memory.limit_bytes = held_bytes(dask.config.get(LIMIT, None), limit)
        cupy_setup.release_generators_without_gil()
        wire.register(Staging())
        cupy_setup.register_in_every_lookup()


def use_rmm(
    limit: int,
    total: int,
    make_room: Callable[[], bool],
    pool_size: float | str | None,
    stream_ordered: bool,
) -> Any:
    """Make RMM this device's resource, of up to `limit` of `total` bytes; return CuPy's allocator.

    `pool_size` is its initial size: bytes, text such as "8 GiB", or a share of the device. With
    `stream_ordered` the driver keeps the pool (`cudaMallocAsync`). Raises ImportError without RMM.
    Source: RMM's `rmm.mr`, 26.10.
    """
    import rmm
    from rmm import mr
    from rmm.allocators.cupy import rmm_cupy_allocator

    first = FIRST_BYTES
    if pool_size is not None:
        first = amount_bytes(pool_size, total) // ALIGNMENT * ALIGNMENT
    first = min(first, limit)
    if stream_ordered:
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
    if stream_ordered:
        rmm.DeviceBuffer(size=first)  # counts the peak, which is what the driver's pool keeps
    return rmm_cupy_allocator


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


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
