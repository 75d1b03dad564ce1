"""Device arrays by CUDA IPC: handles of this process's memory, and copies from that of others.

Each allocation is asked whether it can have a handle; `cudaMallocAsync`'s and managed ones cannot.
Opening one takes 5 to 13 ms, so a reader keeps the pool's memory mapped until its owner wants it
closed (`Allocations`); any other, torch's for one, it closes after each copy. A mapping is
known by CU_POINTER_ATTRIBUTE_BUFFER_ID, which no later allocation at that address has.

What a peer has mapped is not given back to the driver before the peer closed it, which the driver
leaves undefined: the pool may drop it at any time, in any thread, and the event loop then asks the
peers. Who waits for memory waits for that, too. Source: CUDA Runtime API, cudaIpcOpenMemHandle.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gputui.model.frozen import frozen
from gputui.model.usage import Way
from gputui.worker.cuda import Driver, driver
from gputui.worker.transfers.loans import Location, Page, Ticket, check_held, moved, say_once

DEVICE_FROM_BYTES = 2**16
"""From which a device array is faster by a handle than through host memory."""

NOT_KEPT_FROM_BYTES = 2**24
"""Below this size an array that is not the pool's goes as bytes: a handle opened for one copy takes
longer."""


@frozen
class Reader:
    """A worker that values are lent to, and that may have memory of this one mapped."""

    address: str
    location: Location


@dataclass(slots=True)
class _Allocation:
    buffer_id: int = 0
    handle: bytes = b""
    readers: set[Reader] = field(default_factory=set)


class Allocations:
    """The device memory that this process's pool holds, by address, and who may have it mapped.

    `add` and `give_back` take no lock: the pool calls them under its own, also from a finalizer,
    in a thread that may be in the midst of `lend`. What lends holds an array of that memory, so
    nothing can give it back meanwhile.
    """

    def __init__(self, device: Driver = driver) -> None:
        self._driver = device
        self._held: dict[int, _Allocation] = {}
        self._withheld: set[int] = set()
        self._changed = threading.Condition()
        self.ask_to_close: Callable[[int, int, frozenset[Reader]], object] | None = None
        """Called in any thread, with address, buffer id and readers: `free` when all have."""

    def add(self, base: int) -> None:
        """Take note of memory that the driver gave."""
        self._held[base] = _Allocation()

    def lend(self, base: int, buffer_id: int, reader: Reader) -> bytes | None:
        """Return a handle for a reader that may keep it; None where this is not the pool's."""
        allocation = self._held.get(base)
        if allocation is None:
            return None
        if not allocation.handle:
            allocation.buffer_id = buffer_id
            allocation.handle = self._driver.export(base)
        allocation.readers.add(reader)
        return allocation.handle

    def give_back(self, base: int) -> None:
        """Free unused memory of the pool, now or once its readers have closed it."""
        allocation = self._held.pop(base)
        if not allocation.readers:
            self._driver.free(base)
            return
        self._withheld.add(base)
        if self.ask_to_close:
            self.ask_to_close(base, allocation.buffer_id, frozenset(allocation.readers))

    def free(self, base: int) -> None:
        """Free the withheld memory."""
        self._driver.free(base)
        with self._changed:
            self._withheld.discard(base)
            self._changed.notify_all()

    def wait(self, bound_s: float) -> bool:
        """Wait until nothing is withheld any more; return whether anything was freed."""
        with self._changed:
            before = len(self._withheld)
            self._changed.wait_for(lambda: not self._withheld, bound_s)
            return len(self._withheld) < before


class AllocationOwner:
    """Frees an allocation when its last reference is dropped."""

    __slots__ = ("_allocations", "_base")

    def __init__(self, allocations: Allocations, base: int) -> None:
        allocations.add(base)
        self._allocations, self._base = allocations, base

    def __del__(self) -> None:
        """Give it back."""
        self._allocations.give_back(self._base)


allocations = Allocations()
"""This process's."""


class NoMappingError(OSError):
    """This process cannot map what another one on its host has lent."""


@frozen
class MappedBytes:
    """Bytes on an owner's device, as a reader finds them."""

    ticket: Ticket
    handle: bytes
    buffer_id: int
    offset: int
    size: int
    stays: bool
    """Whether the mapping may stay until the owner asks for its end."""


@dataclass(slots=True)
class Loan:
    """What one message lends to one reader; `release` frees it, once."""

    page: Page
    ticket: Ticket
    reader: Reader
    maps_device: bool
    """Whether the reader can map memory of this device."""
    pool: Allocations = allocations
    device: Driver = driver
    kept: list[object] = field(default_factory=list)
    """Arrays, copies of arrays, and other sources of the reader's copies."""
    descriptors: list[int] = field(default_factory=list)
    """Of memory files."""
    _settled: bool = False
    _released: bool = False

    def release(self) -> None:
        """Release everything; the word first."""
        if self._released:
            return
        self._released = True
        self.page.give_back(self.ticket.slot)
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.kept.clear()

    def settle_device(self) -> None:
        """Wait until everything is done that tasks had queued on the device by now."""
        if not self._settled:
            self.device.synchronize()
            self._settled = True

    def device_frame(self, pointer: int, size: int, array: object) -> MappedBytes | None:
        """Lend the bytes of a device array; None where they can go through host memory only."""
        if not self.maps_device or size < DEVICE_FROM_BYTES:
            return None
        self.kept.append(array)
        try:
            base, buffer_id = self.device.allocation(pointer)
            handle = self.pool.lend(base, buffer_id, self.reader)
            stays = handle is not None
            if handle is None:
                if size < NOT_KEPT_FROM_BYTES or not self.device.can_export(pointer):
                    return None
                handle = self.device.export(base)
        except OSError as error:
            say_once(f"device arrays go through host memory: {error}")
            return None
        return MappedBytes(self.ticket, handle, buffer_id, pointer - base, size, stays)


@dataclass(slots=True)
class _Mapping:
    owner: Location
    address: int
    copies: int = 0
    """The number that read it now."""


class Mappings:
    """The memory of others that this process has mapped."""

    def __init__(self, device: Driver = driver) -> None:
        self._driver = device
        self._open: dict[tuple[int, int, int], _Mapping] = {}
        self._changed = threading.Condition()

    def copy(self, frame: MappedBytes, pointer: int) -> None:
        """Copy a loan to this device; raises OSError, or NoMappingError if it never can."""
        with self._mapped(frame) as address:
            self._driver.copy(pointer, address + frame.offset, frame.size)
        moved(Way.DEVICE, frame.size)

    def close(self, pid: int, page_file: int, buffer_id: int) -> None:
        """Close the mapping of an owner's allocation, as soon as no copy uses it."""
        key = (pid, page_file, buffer_id)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._open or not self._open[key].copies)
            self._close(key)

    @contextmanager
    def _mapped(self, frame: MappedBytes) -> Iterator[int]:
        owner = frame.ticket.owner
        key = (owner.pid, owner.page_file, frame.buffer_id)
        with self._changed:
            mapping = self._open.get(key) or self._new(key, frame)
            mapping.copies += 1
        try:
            yield mapping.address
        finally:
            with self._changed:
                mapping.copies -= 1
                if not mapping.copies and not frame.stays:
                    self._close(key)
                self._changed.notify_all()

    def _new(self, key: tuple[int, int, int], frame: MappedBytes) -> _Mapping:
        for other, mapping in list(self._open.items()):
            if not mapping.copies and not mapping.owner.alive():
                self._close(other)
        try:
            address = self._driver.open(frame.handle)
        except OSError as error:
            check_held(frame.ticket)
            raise NoMappingError(*error.args) from error
        self._open[key] = _Mapping(frame.ticket.owner, address)
        try:
            check_held(frame.ticket)  # a handle of memory that was freed may open something else
        except OSError:
            self._close(key)
            raise
        return self._open[key]

    def _close(self, key: tuple[int, int, int]) -> None:
        mapping = self._open.pop(key, None)
        if mapping:
            self._driver.close(mapping.address)


mappings = Mappings()
"""The mappings of this process."""
