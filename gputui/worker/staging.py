"""Device memory to ordinary host memory and back, through a few pinned buffers.

The card copies out of ordinary memory at a fraction of its rate, and one thread fills new memory
at a fraction of what the machine's does. Here each of some threads has a pinned buffer and every
piece in turn: while the card fills one buffer, the others are emptied.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from typing import Any

import numpy as np

from gputui.worker.cuda import Driver, driver

PIECE_BYTES = 2**24
MOST_THREADS = 8
"""Each with a pinned buffer of a piece."""


class Staging:
    """The pinned buffers of this process; one copy at a time uses them."""

    def __init__(self, device: Driver = driver, threads: int | None = None) -> None:
        self._driver = device
        self._count = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)))
        self._lock = threading.Lock()

    def to_host(self, pointer: int, size: int) -> Any:
        """Return bytes of the device in an array, once all work there is done; raises OSError."""
        array = np.empty(size, "u1")

        def copy(buffer: Any, start: int, stop: int) -> None:
            self._driver.copy_to_host(buffer.ctypes.data, pointer + start, stop - start)
            array[start:stop] = buffer[: stop - start]

        self._in_pieces(copy, size)
        return array

    def to_device(self, data: Any, pointer: int) -> None:
        """Copy a buffer to the device, once all work there is done; raises OSError."""
        array = np.frombuffer(data, "u1")

        def copy(buffer: Any, start: int, stop: int) -> None:
            buffer[: stop - start] = array[start:stop]
            self._driver.copy_to_device(pointer + start, buffer.ctypes.data, stop - start)

        self._in_pieces(copy, array.nbytes)

    def _in_pieces(self, copy: Any, size: int) -> None:
        def work(index: int, buffer: Any) -> None:
            for start in range(index * PIECE_BYTES, size, self._count * PIECE_BYTES):
                copy(buffer, start, min(start + PIECE_BYTES, size))

        with self._lock:
            self._driver.synchronize()
            works = [self._threads.submit(work, *each) for each in enumerate(self._buffers)]
            wait(works)  # all of them: buffers and device memory are in use until then
        for each in works:
            each.result()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._count, "gputui-staging")

    @cached_property
    def _buffers(self) -> list[Any]:
        return [self._driver.pinned(PIECE_BYTES) for _ in range(self._count)]
