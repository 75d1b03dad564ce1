"""Device arrays by CUDA IPC: handles of this process's memory, and copies from that of others.

Each allocation is asked whether it can have a handle; `cudaMallocAsync`'s and managed ones cannot.
Opening one takes 5 to 13 ms, so a reader keeps the pool's memory mapped until its owner wants it
closed (`allocations`); any other, torch's for one, it closes after each copy. A mapping is
known by CU_POINTER_ATTRIBUTE_BUFFER_ID, which no later allocation at that address has.
"""

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gputui.worker.cuda import Driver, driver
from gputui.worker.transfers.allocations import Allocations, Reader
from gputui.worker.transfers.loans import Ticket, Way, came, check_held, say_once
from gputui.worker.transfers.location import Location

NOT_KEPT_FROM_BYTES = 2**24
"""Below this size an array that is not the pool's goes as bytes: a handle opened for one copy takes
longer."""


class NoMappingError(OSError):
    """This process cannot map what another one on its host has lent."""


@dataclass(frozen=True, slots=True)
class MappedBytes:
    """Bytes on an owner's device, as a reader finds them."""

    handle: bytes
    buffer_id: int
    offset: int
    size: int
    stays: bool
    """Whether the mapping may stay until the owner asks for its end."""
    checksum: int | None


class Exporter:
    """Lends memory of this process's device to one reader."""

    def __init__(self, allocations: Allocations, reader: Reader, device: Driver = driver) -> None:
        self._allocations = allocations
        self._reader = reader
        self._driver = device

    def frame(self, pointer: int, size: int, *, check: bool) -> MappedBytes | None:
        """Return bytes as the reader finds them; None where they can have no handle."""
        try:
            base, buffer_id = self._driver.allocation(pointer)
            handle = self._allocations.lend(base, buffer_id, self._reader)
            stays = handle is not None
            if handle is None:
                if size < NOT_KEPT_FROM_BYTES or not self._driver.can_export(pointer):
                    return None
                handle = self._driver.export(base)
            checksum = zlib.crc32(self._driver.read(pointer, size)) if check else None
        except OSError as error:
            say_once(f"device arrays go through host memory: {error}")
            return None
        return MappedBytes(handle, buffer_id, pointer - base, size, stays, checksum)


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

    def copy(self, frame: MappedBytes, ticket: Ticket, pointer: int) -> None:
        """Copy a loan to this device; raises OSError, or NoMappingError if it never can."""
        with self._mapped(frame, ticket) as address:
            self._driver.copy(pointer, address + frame.offset, frame.size)
        came(Way.DEVICE)
        if frame.checksum is not None:
            check_held(ticket)
            if zlib.crc32(self._driver.read(pointer, frame.size)) != frame.checksum:
                raise OSError(f"a device array of {frame.size} bytes differs from what was lent")

    def close(self, pid: int, page_file: int, buffer_id: int) -> None:
        """Close the mapping of an owner's allocation, as soon as no copy uses it."""
        key = (pid, page_file, buffer_id)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._open or not self._open[key].copies)
            self._close(key)

    @contextmanager
    def _mapped(self, frame: MappedBytes, ticket: Ticket) -> Iterator[int]:
        key = (ticket.owner.pid, ticket.owner.page_file, frame.buffer_id)
        with self._changed:
            mapping = self._open.get(key) or self._new(key, frame, ticket)
            mapping.copies += 1
        try:
            yield mapping.address
        finally:
            with self._changed:
                mapping.copies -= 1
                if not mapping.copies and not frame.stays:
                    self._close(key)
                self._changed.notify_all()

    def _new(self, key: tuple[int, int, int], frame: MappedBytes, ticket: Ticket) -> _Mapping:
        self._close_those_of_the_dead()
        try:
            address = self._driver.open(frame.handle)
        except OSError as error:
            check_held(ticket)
            raise NoMappingError(*error.args) from error
        mapping = self._open[key] = _Mapping(ticket.owner, address)
        try:
            check_held(ticket)  # a handle of memory that was freed may open something else
        except OSError:
            self._close(key)
            raise
        return mapping

    def _close_those_of_the_dead(self) -> None:
        for key, mapping in list(self._open.items()):
            if not mapping.copies and not mapping.owner.alive():
                self._close(key)

    def _close(self, key: tuple[int, int, int]) -> None:
        mapping = self._open.pop(key, None)
        if mapping:
            self._driver.close(mapping.address)


mappings = Mappings()
"""The mappings of this process."""
