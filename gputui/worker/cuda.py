"""The CUDA driver by ctypes, which releases the GIL: a worker answers while its context is made.

The driver makes one context at a time on a machine; asking in turn makes the first GPU ready
after 0.4 s, where all at once leaves every one waiting for the last. A thread begins without a
context, and every call there fails until it has entered the device's own.
Source: CUDA Driver API, cuDevicePrimaryCtxRetain, cuDeviceGetUuid_v2, cuIpcGetMemHandle,
cuPointerGetAttribute.
"""

import ctypes
import fcntl
import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from typing import Any

import numpy as np

BUFFER_ID = 7
IS_LEGACY_CUDA_IPC_CAPABLE = 10
"""Attributes of a pointer."""
LAZY_ENABLE_PEER_ACCESS = 1
NON_BLOCKING_STREAM = 1
DISABLE_TIMING = 2
DEFAULT_STREAM = ctypes.c_void_p(1)
"""The one that every library here uses unless people say otherwise: CU_STREAM_LEGACY."""

TURN_S = 30.0
"""How long a worker waits for its turn: one whose GPU hangs in the driver never gives it up."""
TURN_EVERY_S = 0.01

PIECE_BYTES = 2**24
MOST_THREADS = 8
"""Each with a pinned buffer of a piece."""


def open_device(lock: str) -> str:
    """Make the primary context of the one visible device, and return the device's UUID.

    Workers of one host take turns by the file `lock`, within bounds. Raises OSError with CUDA's
    error code.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not take_turn(descriptor, TURN_S):
            print(f"CUDA: another worker has kept its turn for {TURN_S:g} s: not waiting any more")
        return driver.uuid()
    finally:
        os.close(descriptor)


def take_turn(descriptor: int, bound_s: float) -> bool:
    """Lock a file, and return whether it could be locked in time; blocks a thread, not the GIL."""
    deadline = time.monotonic() + bound_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(TURN_EVERY_S)


def _call(driver: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(driver, name)(*arguments)
    if code:
        raise OSError(code, f"{name} gave CUDA error {code}")


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which the driver takes by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class Driver:
    """The CUDA calls that move memory between processes; each raises OSError with CUDA's code."""

    def __init__(self) -> None:
        self._thread = threading.local()

    @cached_property
    def _library(self) -> ctypes.CDLL:
        return ctypes.CDLL("libcuda.so.1")

    def _do(self, name: str, *arguments: object) -> None:
        self._enter()
        _call(self._library, name, *arguments)

    def _get(self, kind: type[Any], name: str, *arguments: object) -> Any:
        """Return the value that a function writes to the pointer which it takes first."""
        value = kind()
        self._do(name, ctypes.byref(value), *arguments)
        return value

    def _enter(self) -> threading.local:
        """Make the device's primary context this thread's, once, with a stream to copy on."""
        if hasattr(self._thread, "stream"):
            return self._thread
        context, device = ctypes.c_void_p(), ctypes.c_int()
        _call(self._library, "cuInit", 0)
        _call(self._library, "cuDeviceGet", ctypes.byref(device), 0)
        _call(self._library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        _call(self._library, "cuCtxSetCurrent", context)
        stream, event = ctypes.c_void_p(), ctypes.c_void_p()
        _call(self._library, "cuStreamCreate", ctypes.byref(stream), NON_BLOCKING_STREAM)
        _call(self._library, "cuEventCreate", ctypes.byref(event), DISABLE_TIMING)
        self._thread.stream, self._thread.event = stream, event
        return self._thread

    def uuid(self) -> str:
        """Return the UUID of this process's device, as NVML writes it.

        v2 gives a MIG instance its own. CuPy's `getDeviceProperties` ends it at the first byte that
        is 0: one GPU in sixteen has one.
        """
        device = self._get(ctypes.c_int, "cuDeviceGet", 0)
        data = self._get(ctypes.c_ubyte * 16, "cuDeviceGetUuid_v2", device)
        pinned = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return f"{'MIG' if pinned.startswith('MIG') else 'GPU'}-{uuid.UUID(bytes=bytes(data))}"

    def free_bytes(self) -> int:
        """Return the bytes of the device that nothing has allocated."""
        total = ctypes.byref(ctypes.c_size_t())
        return int(self._get(ctypes.c_size_t, "cuMemGetInfo_v2", total).value)

    def allocation(self, pointer: int) -> tuple[int, int]:
        """Return the start of the allocation that a pointer is in, and its buffer id."""
        at, size = ctypes.c_uint64(pointer), ctypes.c_size_t()
        base = self._get(ctypes.c_uint64, "cuMemGetAddressRange_v2", ctypes.byref(size), at)
        ident = self._get(ctypes.c_uint64, "cuPointerGetAttribute", BUFFER_ID, at)
        return base.value, ident.value

    def can_export(self, pointer: int) -> bool:
        """Return whether the allocation there can have a handle."""
        asked = IS_LEGACY_CUDA_IPC_CAPABLE, ctypes.c_uint64(pointer)
        return bool(self._get(ctypes.c_int, "cuPointerGetAttribute", *asked).value)

    def export(self, base: int) -> bytes:
        """Return a handle of the allocation that starts there."""
        return bytes(self._get(_Handle, "cuIpcGetMemHandle", ctypes.c_uint64(base)))

    def open(self, handle: bytes) -> int:
        """Map another process's allocation, and return its address here."""
        given = _Handle.from_buffer_copy(handle), ctypes.c_uint(LAZY_ENABLE_PEER_ACCESS)
        return int(self._get(ctypes.c_uint64, "cuIpcOpenMemHandle_v2", *given).value)

    def close(self, address: int) -> None:
        """Unmap the memory."""
        self._do("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def free(self, base: int) -> None:
        """Give memory back to the driver."""
        self._do("cuMemFree_v2", ctypes.c_uint64(base))

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy on the device, and wait until that is done.

        The target's memory was free for reuse, but what was queued on the default stream before
        may still read it: the copy goes after that.
        """
        here = self._enter()
        self._do("cuEventRecord", here.event, DEFAULT_STREAM)
        self._do("cuStreamWaitEvent", here.stream, here.event, ctypes.c_uint(0))
        self._copy("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), size)

    def pinned(self, size: int) -> Any:
        """Return an array of bytes that the card copies to and from directly."""
        asked = ctypes.c_size_t(size), ctypes.c_uint(0)
        address = self._get(ctypes.c_void_p, "cuMemHostAlloc", *asked)
        return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address.value or 0))

    def copy_to_host(self, target: int, source: int, size: int) -> None:
        """Copy to pinned memory, and wait until that is done."""
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(target), ctypes.c_uint64(source), size)

    def copy_to_device(self, target: int, source: int, size: int) -> None:
        """Copy from pinned memory, and wait until that is done."""
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_void_p(source), size)

    def _copy(self, name: str, target: object, source: object, size: int) -> None:
        stream = self._enter().stream
        self._do(name, target, source, ctypes.c_size_t(size), stream)
        self._do("cuStreamSynchronize", stream)

    def synchronize(self) -> None:
        """Wait until everything that was queued on the device is done, on every stream."""
        self._do("cuCtxSynchronize")


driver = Driver()
"""This process's."""


class Staging:
    """Copies device memory to ordinary host memory and back, one at a time, by pinned buffers.

    The card copies out of ordinary memory at a fraction of its rate, and one thread fills new
    memory at a fraction of what the machine's does. Here each of some threads has a pinned buffer
    and every piece in turn: while the card fills one buffer, the others are emptied.
    """

    def __init__(self, device: Driver = driver, threads: int | None = None) -> None:
        self.device = device
        self._count = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)))
        self._lock = threading.Lock()

    def to_host(self, pointer: int, size: int) -> Any:
        """Return bytes of the device in an array, once all work there is done; raises OSError."""
        array = np.empty(size, "u1")

        def copy(buffer: Any, start: int, stop: int) -> None:
            self.device.copy_to_host(buffer.ctypes.data, pointer + start, stop - start)
            array[start:stop] = buffer[: stop - start]

        self._in_pieces(copy, size)
        return array

    def to_device(self, data: Any, pointer: int) -> None:
        """Copy a buffer to the device, once all work there is done; raises OSError."""
        array = np.frombuffer(data, "u1")

        def copy(buffer: Any, start: int, stop: int) -> None:
            buffer[: stop - start] = array[start:stop]
            self.device.copy_to_device(pointer + start, buffer.ctypes.data, stop - start)

        self._in_pieces(copy, array.nbytes)

    def _in_pieces(self, copy: Any, size: int) -> None:
        def work(index: int, buffer: Any) -> None:
            for start in range(index * PIECE_BYTES, size, self._count * PIECE_BYTES):
                copy(buffer, start, min(start + PIECE_BYTES, size))

        with self._lock:
            self.device.synchronize()
            works = [self._threads.submit(work, *each) for each in enumerate(self._buffers)]
            wait(works)  # all of them: buffers and device memory are in use until then
        for each in works:
            each.result()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._count, "gputui-staging")

    @cached_property
    def _buffers(self) -> list[Any]:
        return [self.device.pinned(PIECE_BYTES) for _ in range(self._count)]
