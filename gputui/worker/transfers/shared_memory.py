"""Host buffers through memory files: written by the owner, mapped by the reader, in no folder.

`write` allocates each page as it fills it, so a machine without memory answers with an error
where a store into a mapping would end the process by SIGBUS. The owner never maps the file and
closes it when the reader has it: the bytes count once, in the reader. After any death the kernel
frees the file with the last descriptor or mapping. Source: memfd_create(2).
"""

import ctypes
import mmap
import os
import weakref

from gputui.worker.transfers.location import Location
from gputui.worker.transfers.ways import Way, came

STEP_BYTES = 2**26
MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def put(buffer: memoryview) -> int:
    """Return the descriptor of a new memory file that holds these bytes; raises OSError."""
    descriptor = os.memfd_create("gputui-array", os.MFD_CLOEXEC)
    try:
        written = 0
        while written < buffer.nbytes:
            written += os.write(descriptor, buffer[written : written + STEP_BYTES])
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def take(owner: Location, descriptor: int, size: int) -> memoryview:
    """Map the memory file behind an owner's descriptor; raises OSError.

    The memory lives as long as the view, and is this process's alone once the owner has closed it.
    """
    opened = owner.open(descriptor)
    try:
        if os.fstat(opened).st_size != size:
            raise OSError(f"process {owner.pid} has another file behind descriptor {descriptor}")
        came(Way.MEMORY_FILE)
        return _mapped(opened, size)
    finally:
        os.close(opened)


def _mapped(descriptor: int, size: int) -> memoryview:
    """Map a file; Python's own mmap would keep a descriptor for each (until 3.13)."""
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_POPULATE
    address = _libc.mmap(None, size, access, flags, descriptor, 0)
    if address == MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False
    return memoryview(memory).cast("B")
