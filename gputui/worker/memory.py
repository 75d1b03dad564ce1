"""A GPU worker's data: on the device, then in host memory, then on disk.

Dask counts a CuPy array's bytes as host memory and, past 60 % of the host limit, writes device
arrays to disk. Here each value counts where it lies: on the device by its bytes there, in host
memory and on disk in Dask's own `SpillBuffer`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from dask.utils import parse_bytes
from distributed.protocol.serialize import deserialize, serialize
from distributed.spill import SpillBuffer

DEVICE_LIBRARIES = frozenset({"cupy", "cupyx", "cudf", "torch"})
"""Types of values that are on the device, and can be moved off it and back."""

logger = logging.getLogger(__name__)


def device_bytes(value: object) -> int:
    """Return the bytes that a value holds on the device, also inside lists, tuples and dicts.

    >>> device_bytes([1, {"a": "text"}])
    0
    """
    if isinstance(value, Mapping):
        return sum(map(device_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(device_bytes, value))
    on_host = getattr(value, "is_cuda", True) is False  # a torch tensor there
    if on_host or type(value).__module__.partition(".")[0] not in DEVICE_LIBRARIES:
        return 0
    return int(sizeof(value))


HELD_SHARE = 0.8
"""Share of the pool for results; the rest is for running tasks."""


def held_bytes(limit: float | str | None, pool_bytes: int) -> int:
    """Return how many bytes tasks may leave on the device, of a pool of so many.

    `limit` is bytes, text such as "8 GiB", or a share of the pool; None is the usual share.

    >>> held_bytes(None, 1000), held_bytes(0.5, 1000), held_bytes("200 B", 1000)
    (800, 500, 200)
    >>> held_bytes("80 GiB", 1000)
    1000
    """
    if limit is None:
        limit = HELD_SHARE
    return min(pool_bytes, amount_bytes(limit, pool_bytes))


def amount_bytes(amount: float | str, whole: int) -> int:
    """Return the bytes of an amount: a share of the whole up to 1, else bytes or text.

    Source: dask-cuda's `parse_device_memory_limit`.

    >>> amount_bytes("0.5", 1000), amount_bytes(1, 1000), amount_bytes(64, 1000)
    (500, 1000, 64)
    """
    with contextlib.suppress(ValueError):
        if float(amount) <= 1:
            return int(float(amount) * whole)
    return int(parse_bytes(amount))


class SpilledValue:
    """A value whose device arrays were copied to host memory."""

    def __init__(self, value: object) -> None:
        self.header, frames = serialize(value, serializers=("dask", "pickle"), on_error="raise")
        self.frames = [np.asarray(memoryview(frame).cast("B")) for frame in frames]

    def __sizeof__(self) -> int:
        """Return its bytes, as `dask.sizeof` asks for them."""
        return sum(frame.nbytes for frame in self.frames)

    def back(self) -> object:
        """Return the value, on the device again; raises the device's own out-of-memory error."""
        return deserialize(self.header, [frame.data for frame in self.frames])


class DeviceMemory(MutableMapping[Hashable, object]):
    """Values by key. The least recently used leave the device first.

    Tasks allocate in a thread of their own and may call `make_room` there, so every method but
    `__len__` locks; attributes of the host's buffer do not.
    """

    def __init__(
        self, folder: str, host_bytes: float, measure: Callable[[object], int] = device_bytes
    ) -> None:
        """Keep so many bytes in host memory, and the rest in files in `folder`."""
        self.limit_bytes: int | None = None
        """On the device; None until the device is open."""
        self.settle: Callable[[], object] = lambda: None
        """Waits until the device is done with what tasks left pending when they returned."""
        self.device_bytes = 0
        self._measure = measure
        self._device: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._fixed: set[Hashable] = set()
        """Keys on the device whose values cannot be serialized."""
        self._host = SpillBuffer(str(Path(folder, "spilled")), target=host_bytes)
        self._lock = threading.RLock()

    def __setitem__(self, key: Hashable, value: object) -> None:
        with self._lock:
            self._forget(key)
            size = self._measure(value)
            if not size:
                self._host[key] = value
                return
            self._device[key] = (value, size)
            self.device_bytes += size
            while self.limit_bytes and self.device_bytes > self.limit_bytes:
                if not self.make_room(keep=key):
                    break

    def __getitem__(self, key: Hashable) -> object:
        with self._lock:
            if key in self._device:
                self._device.move_to_end(key)
                return self._device[key][0]
            value = self._host[key]
            if isinstance(value, SpilledValue):
                value = value.back()
                self[key] = value
            return value

    def __delitem__(self, key: Hashable) -> None:
        with self._lock:
            if not self._forget(key):
                raise KeyError(key)

    def __iter__(self) -> Iterator[Hashable]:
        with self._lock:
            return iter([*self._device, *self._host])

    def __len__(self) -> int:
        return len(self._device) + len(self._host)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._device or key in self._host

    def make_room(self, keep: Hashable = None) -> bool:
        """Move the value that was not used for longest off the device; whether there was one.

        One that cannot be serialized stays: whose task needs the room has nothing to do with it.
        """
        with self._lock:
            while True:
                movable = (key for key in self._device if key != keep and key not in self._fixed)
                if (oldest := next(movable, None)) is None:
                    return False
                value, size = self._device.pop(oldest)
                try:
                    self.settle()
                    self._host[oldest] = SpilledValue(value)
                except BaseException as error:
                    self._device[oldest] = value, size
                    self._device.move_to_end(oldest, last=False)
                    if not isinstance(error, Exception) or isinstance(error, MemoryError | OSError):
                        raise
                    self._fixed.add(oldest)
                    logger.warning("%s stays on the device: %s", oldest, error)
                    continue
                self.device_bytes -= size
                return True

    def on_device(self, keys: Iterable[Hashable]) -> bool:
        """Return whether any of these is on the device."""
        with self._lock:
            return any(key in self._device for key in keys)

    def __getattr__(self, name: str) -> Any:
        """Return a field of the buffer in host memory: Dask asks for `fast` and `evict`."""
        return getattr(self._host, name)

    def _forget(self, key: Hashable) -> bool:
        """Drop a key wherever it is; whether it was anywhere."""
        if key in self._device:
            self.device_bytes -= self._device.pop(key)[1]
            self._fixed.discard(key)
            return True
        if key in self._host:
            del self._host[key]
            return True
        return False
