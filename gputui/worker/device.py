"""The GPU of a worker: its CUDA context and its memory."""

import asyncio
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import dask.config

from gputui.worker.cuda import Staging, driver, open_device
from gputui.worker.memory import DeviceMemory, held_bytes
from gputui.worker.rmm_pool import RmmOptions

LIMIT = "gputui.device-memory-limit"


class Device:
    """One GPU or MIG instance, of a worker that sees no other."""

    def __init__(self, spec: Mapping[str, Any], host_bytes: float) -> None:
        """Initialize from the fields scratch, lock, device_uuid and device_share of a worker's
        spec.

        Raises ModuleNotFoundError if RMM is requested and not installed.
        """
        self._spec = spec
        self.opened = asyncio.Event()
        """Set when tasks may run, also where there is no context: they will say so themselves."""
        self.uuid: str | None = None
        """UUID of the CUDA context's device; None without a context."""
        self.memory = DeviceMemory(spec["scratch"], host_bytes)
        self._rmm = RmmOptions.configured()

    async def make_context(self) -> None:
        """Make the CUDA context, in turn with the other workers of the host."""
        try:
            self.uuid = await asyncio.to_thread(open_device, self._spec["lock"])
        except OSError as error:
            print(f"CUDA: no context on {self._spec['device_uuid']}: {error}", flush=True)

    async def open(self, context: asyncio.Task[None]) -> None:
        """Import what tasks use while the context is made, then set up CuPy."""
        try:
            await asyncio.to_thread(importlib.import_module, "dask.array")
            await context
            if self.uuid and _has_cupy():
                await asyncio.to_thread(self._set_up_cupy)
        finally:
            self.opened.set()

    def _set_up_cupy(self) -> None:
        from gputui.engine import device_arrays
        from gputui.worker import cupy_setup

        self.memory.settle = driver.synchronize
        share = self._spec["device_share"]
        pool_bytes = cupy_setup.use_pool(share, self.memory.make_room, self._rmm)
        self.memory.limit_bytes = held_bytes(dask.config.get(LIMIT, None), pool_bytes)
        cupy_setup.release_generators_without_gil()
        device_arrays.register(Staging())
        cupy_setup.register_in_every_lookup()


def _has_cupy() -> bool:
    return importlib.util.find_spec("cupy") is not None
