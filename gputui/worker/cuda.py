"""The CUDA driver by ctypes, which releases the GIL: a worker answers while its context is made.

The driver makes one context at a time on a machine; asking in turn makes the first GPU ready
after 0.4 s, where all at once leaves every one waiting for the last.
Source: CUDA Driver API, cuDevicePrimaryCtxRetain, cuDeviceGetUuid_v2.
"""

import ctypes
import fcntl
import os
import time
import uuid

TURN_S = 30.0
"""How long a worker waits for its turn: one whose GPU hangs in the driver never gives it up."""
TURN_EVERY_S = 0.01


def open_device(lock: str) -> str:
    """Make the primary context of the one visible device, and return the device's UUID.

    Workers of one host take turns by the file `lock`, within bounds. Raises OSError with CUDA's
    error code.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not take_turn(descriptor, TURN_S):
            print(f"CUDA: another worker has kept its turn for {TURN_S:g} s: not waiting any more")
        _call(driver, "cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        _call(driver, "cuDeviceGet", ctypes.byref(device), 0)
        _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return _uuid(driver, device)
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
            if time.monotonic() > deadline:
                return False
            time.sleep(TURN_EVERY_S)


def _uuid(driver: ctypes.CDLL, device: ctypes.c_int) -> str:
    """Return the UUID as NVML writes it; v2 gives a MIG instance its own."""
    data = (ctypes.c_ubyte * 16)()
    _call(driver, "cuDeviceGetUuid_v2", ctypes.byref(data), device)
    pinned = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    prefix = "MIG" if pinned.startswith("MIG") else "GPU"
    return f"{prefix}-{uuid.UUID(bytes=bytes(data))}"


def _call(driver: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(driver, name)(*arguments)
    if code:
        raise OSError(code, f"{name} gave CUDA error {code}")
