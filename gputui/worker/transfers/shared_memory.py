"""Host buffers through memory files: written by the owner, mapped by the reader, in no folder.

New memory is what a copy costs most: the kernel finds and maps each page. So a reader keeps the
files of arrays that it dropped for a few seconds, and offers them with its next request: an owner
writes into one of these that fits, else into a new one, whose pages `write` allocates, so that a
machine without memory answers with an error where a store into a mapping would end the process by
SIGBUS. The owner keeps none: the bytes count once, in the reader. After any death the kernel frees
a file with the last descriptor or mapping. Source: memfd_create(2).
"""

import contextlib
import ctypes
import mmap
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from gputui.model.usage import Way
from gputui.worker.transfers.loans import Location, came

NAME = "gputui-array"
STEP_BYTES = 2**26
MAP_FAILED = ctypes.c_void_p(-1).value
SPARE_SHARE = 1.25
"""The largest offered file, as a multiple of the needed size."""
MOST_OFFERED = 16
MOST_DESCRIPTORS = 256
"""The most files kept; further mappings are closed after use."""
KEPT_S = 3.0
KEPT_SHARE = 16
"""Of files that are in no use: one part in so many of the worker's memory limit."""
KEPT_BYTES = 2**29
"""The same without a limit."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


Offer = tuple[int, int, int]
"""A file of a reader's into which an owner may copy: its descriptor, its inode and its size."""


@dataclass(slots=True)
class MappedFile:
    """A file that this process has mapped."""

    descriptor: int | None
    address: int
    size: int
    dropped_at: float | None = None
    """Since when it is in no use."""
    forks: int = 0
    """How often this process had forked when it came into use."""

    @property
    def offer(self) -> Offer:
        """Return how an owner finds it."""
        assert self.descriptor is not None
        return self.descriptor, os.fstat(self.descriptor).st_ino, self.size

    def free(self) -> None:
        """Give it up; the kernel frees the file when nobody else has it."""
        _libc.munmap(self.address, self.size)
        if self.descriptor is not None:
            os.close(self.descriptor)


class MappedFiles:
    """The files that this process reads arrays from, and those that it keeps for the next ones.

    An array may be dropped in any thread, and by the garbage collector in the middle of what is
    done here: the lock is reentrant, and what is kept changes one file at a time.
    """

    def __init__(self) -> None:
        self.most_bytes = KEPT_BYTES
        self._kept: deque[MappedFile] = deque()
        self._kept_bytes = 0
        self._descriptors = 0
        self._forks = 0
        self._lock = threading.RLock()

    def map(self, owner: Location, descriptor: int, size: int) -> memoryview:
        """Map the file behind an owner's descriptor; raises OSError."""
        opened = owner.open(descriptor)
        try:
            if os.fstat(opened).st_size != size:
                raise OSError(f"process {owner.pid} has another file behind {descriptor}")
            mapped = MappedFile(opened, _mapped(opened, size), size)
        except BaseException:
            os.close(opened)
            raise
        with self._lock:
            if self._descriptors < MOST_DESCRIPTORS:
                self._descriptors += 1
                return self.view(mapped, size)
        os.close(opened)
        mapped.descriptor = None
        return self.view(mapped, size)

    def view(self, mapped: MappedFile, size: int) -> memoryview:
        """Return the start of a file as memory that keeps it from any other use while it lives."""
        mapped.dropped_at, mapped.forks = None, self._forks
        memory = (ctypes.c_ubyte * size).from_address(mapped.address)
        weakref.finalize(memory, self.give_back, (mapped,)).atexit = False
        came(Way.MEMORY_FILE, size)
        return memoryview(memory).cast("B")

    def give_back(self, files: Collection[MappedFile]) -> None:
        """Keep files that are in no use, as far as there is room."""
        for mapped in files:
            with self._lock:
                room = self.most_bytes - self._kept_bytes
                alone = mapped.forks == self._forks
                kept = alone and mapped.descriptor is not None and mapped.size <= room
                if kept:
                    mapped.dropped_at = mapped.dropped_at or time.monotonic()
                    self._kept_bytes += mapped.size
                    self._kept.append(mapped)
            if not kept:
                self.drop((mapped,))

    def offered(self) -> dict[int, MappedFile]:
        """Return the files that owners may copy into, by descriptor; not kept until given back."""
        found: list[MappedFile] = []
        with self._lock:
            while self._kept and len(found) < MOST_OFFERED:
                found.append(self._kept.pop())
                self._kept_bytes -= found[-1].size
        return {mapped.offer[0]: mapped for mapped in found}

    def drop(self, files: Collection[MappedFile]) -> None:
        """Give files up."""
        for mapped in files:
            with self._lock:
                self._descriptors -= mapped.descriptor is not None
            mapped.free()

    def forked(self) -> None:
        """Do not reuse the files in use now: a child process has them mapped, too."""
        self._forks += 1

    def forked_here(self) -> None:
        """Begin again in a child: another thread may have held the lock, and nothing is kept."""
        kept, self._kept, self._kept_bytes = self._kept, deque(), 0
        self._lock = threading.RLock()
        self.drop(kept)

    def trim(self) -> None:
        """Close files that were unused for a while."""
        before, old = time.monotonic() - KEPT_S, []
        with self._lock:
            for _ in range(len(self._kept)):
                mapped = self._kept.popleft()
                if mapped.dropped_at and mapped.dropped_at > before:
                    self._kept.append(mapped)
                    continue
                self._kept_bytes -= mapped.size
                old.append(mapped)
        self.drop(old)  # without the lock: the kernel takes 0.2 s for each GiB


mapped_files = MappedFiles()
"""This process's."""

os.register_at_fork(before=mapped_files.forked, after_in_child=mapped_files.forked_here)


def put(buffer: memoryview) -> int:
    """Return the descriptor of a new memory file that holds these bytes; raises OSError."""
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
    try:
        _write(descriptor, buffer)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write(descriptor: int, buffer: memoryview) -> None:
    """Write bytes from a file's start on; the GIL is released meanwhile."""
    written = 0
    while written < buffer.nbytes:
        written += os.write(descriptor, buffer[written : written + STEP_BYTES])


def parse_offers(said: object) -> list[Offer]:
    """Parse a reader's offers; leave out anything else."""
    offers: list[Offer] = []
    for each in said if isinstance(said, list | tuple) else ():
        numbers = tuple(each) if isinstance(each, list | tuple) else ()
        if [type(number) for number in numbers] == [int] * 3:
            offers.append(numbers)
    return offers


def put_into(offers: list[Offer], reader: Location, buffer: memoryview) -> int | None:
    """Copy a buffer into the smallest offered file that holds it, and little more.

    Returns the file's descriptor at the reader, None where none fits. Offers that were used or
    turn out not to hold are removed.
    """
    size = buffer.nbytes
    while fitting := [each for each in offers if size <= each[2] <= SPARE_SHARE * size]:
        offer = min(fitting, key=lambda each: each[2])
        offers.remove(offer)
        with contextlib.suppress(OSError):
            _copy_into(buffer, reader, offer)
            return offer[0]
    return None


def _copy_into(buffer: memoryview, reader: Location, offer: Offer) -> None:
    """Copy bytes into the file that was offered, and no other that has its descriptor since.

    Raises OSError.
    """
    number, inode, size = offer
    descriptor = reader.open(number)
    try:
        found = os.fstat(descriptor)
        is_memory = os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"/memfd:{NAME}")  # noqa: PTH115
        if not is_memory or (found.st_ino, found.st_size) != (inode, size):
            raise OSError(f"process {reader.pid} has another file behind {number}")
        _write(descriptor, buffer)
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size: int) -> int:
    """Map a file; Python's own mmap would keep a descriptor for each (until 3.13)."""
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_POPULATE
    address: int = _libc.mmap(None, size, access, flags, descriptor, 0)
    if address == MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return address
