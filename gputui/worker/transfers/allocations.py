"""The device memory that this process's pool holds, and who else has it mapped.

What a peer has mapped is not given back to the driver before the peer closed it, which the driver
leaves undefined: the pool may drop it at any time, in any thread, and the event loop then asks the
peers. Who waits for memory waits for that, too. Source: CUDA Runtime API, cudaIpcOpenMemHandle.

`add` and `give_back` take no lock: the pool calls them under its own, also from a finalizer, in a
thread that may be in the midst of `lend`. What lends holds an array of that memory, so nothing
can give it back meanwhile.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gputui.worker.cuda import Driver, driver
from gputui.worker.transfers.location import Location


@dataclass(frozen=True, slots=True)
class Reader:
    """A worker that may have memory of this one mapped."""

    address: str
    location: Location


@dataclass(slots=True)
class _Allocation:
    buffer_id: int = 0
    handle: bytes = b""
    readers: set[Reader] = field(default_factory=set)


class Allocations:
    """Every allocation of the pool, by its address."""

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
