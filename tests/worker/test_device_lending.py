"""Device memory lent and mapped, with a driver that knows what is allocated and what is mapped."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from gputui.worker.transfers.cuda_ipc import (
    NOT_KEPT_FROM_BYTES,
    AllocationOwner,
    Allocations,
    Loan,
    MappedBytes,
    Mappings,
    NoMappingError,
    Reader,
)
from gputui.worker.transfers.loans import Location, NotHeldError, Page, Ticket

BASE = 2**30
SIZE = 2**26
BOUND_S = 10


@dataclass
class FakeDriver:
    """Refuses what the real one leaves undefined: to free memory that somebody has mapped."""

    allocated: dict[int, int] = field(default_factory=lambda: {BASE: 1})
    """Address → buffer id."""
    mapped: dict[int, int] = field(default_factory=dict)
    """Address of a mapping → buffer id."""
    copied: list[tuple[int, int, int]] = field(default_factory=list)
    capable: bool = True

    def allocation(self, pointer: int) -> tuple[int, int]:
        base = max(base for base in self.allocated if base <= pointer)
        return base, self.allocated[base]

    def can_export(self, pointer: int) -> bool:
        return self.capable

    def export(self, base: int) -> bytes:
        return self.allocated[base].to_bytes(64, "little")

    def open(self, handle: bytes) -> int:
        buffer_id = int.from_bytes(handle, "little")
        if buffer_id not in self.allocated.values():
            raise OSError(201, "cuIpcOpenMemHandle gave CUDA error 201")
        address = 2**40 + buffer_id * 2**32
        self.mapped[address] = buffer_id
        return address

    def close(self, address: int) -> None:
        del self.mapped[address]

    def free(self, base: int) -> None:
        assert self.allocated[base] not in self.mapped.values(), "mapped by somebody"
        del self.allocated[base]

    def copy(self, target: int, source: int, size: int) -> None:
        self.copied.append((target, source, size))


@pytest.fixture
def driver() -> Any:
    return FakeDriver()


@pytest.fixture
def page() -> Page:
    return Page()


def ticket_of(page: Page) -> Ticket:
    return Ticket(Location.here(page.descriptor, device="GPU-0"), *page.take())


def frame_of(
    driver: Any, allocations: Allocations, page: Page, size: int = SIZE
) -> MappedBytes | None:
    reader, ticket = Reader("tls://reader", Location.here(0, device="GPU-0")), ticket_of(page)
    loan = Loan(page, ticket, reader, True, pool=allocations, device=driver)
    return loan.device_frame(BASE + 512, size, "an array")


def test_memory_of_the_pool_stays_mapped_until_its_owner_asks(driver: Any, page: Page) -> None:
    allocations, mappings = Allocations(driver), Mappings(driver)
    allocations.add(BASE)
    frame = frame_of(driver, allocations, page)
    ticket = frame.ticket
    for _ in range(2):
        mappings.copy(frame, 7)
    assert driver.copied == [(7, next(iter(driver.mapped)) + 512, SIZE)] * 2
    mappings.close(ticket.owner.pid, ticket.owner.page_file, frame.buffer_id)
    assert not driver.mapped


def test_what_a_reader_may_have_mapped_is_freed_when_it_closed_it(driver: Any, page: Page) -> None:
    allocations, mappings = Allocations(driver), Mappings(driver)
    asked: list[tuple[Any, ...]] = []
    allocations.ask_to_close = lambda *which: asked.append(which)
    owner = AllocationOwner(allocations, BASE)
    frame = frame_of(driver, allocations, page)
    ticket = frame.ticket
    mappings.copy(frame, 7)
    del owner
    [(base, buffer_id, readers)] = asked
    assert BASE in driver.allocated
    assert {reader.address for reader in readers} == {"tls://reader"}
    waiting = threading.Thread(target=allocations.wait, args=(BOUND_S,))
    waiting.start()
    mappings.close(ticket.owner.pid, ticket.owner.page_file, buffer_id)
    allocations.free(base)
    waiting.join(BOUND_S)
    assert not waiting.is_alive()
    assert not driver.allocated


def test_what_nobody_has_mapped_is_freed_at_once(driver: Any) -> None:
    allocations = Allocations(driver)
    owner = AllocationOwner(allocations, BASE)
    del owner
    assert not driver.allocated


def test_memory_that_is_not_the_pools_is_closed_after_each_copy(driver: Any, page: Page) -> None:
    mappings = Mappings(driver)
    frame = frame_of(driver, Allocations(driver), page)
    mappings.copy(frame, 7)
    assert driver.copied
    assert not driver.mapped


def test_what_is_not_the_pools_and_small_or_has_no_handle_goes_another_way(
    driver: Any, page: Page
) -> None:
    assert frame_of(driver, Allocations(driver), page, NOT_KEPT_FROM_BYTES - 1) is None
    driver.capable = False
    assert frame_of(driver, Allocations(driver), page) is None


def test_a_loan_that_ended_is_neither_mapped_nor_copied(driver: Any, page: Page) -> None:
    allocations, mappings = Allocations(driver), Mappings(driver)
    allocations.add(BASE)
    frame = frame_of(driver, allocations, page)
    page.give_back(frame.ticket.slot)
    with pytest.raises(NotHeldError):
        mappings.copy(frame, 7)
    assert not driver.mapped
    assert not driver.copied


def test_a_later_allocation_at_the_address_gets_a_mapping_of_its_own(
    driver: Any, page: Page
) -> None:
    mappings = Mappings(driver)
    for buffer_id in (1, 2):
        driver.allocated[BASE] = buffer_id
        allocations = Allocations(driver)
        allocations.add(BASE)
        frame = frame_of(driver, allocations, page)
        mappings.copy(frame, 7)
    (_, first, _), (_, second, _) = driver.copied
    assert first != second


def test_a_reader_that_cannot_map_says_so(driver: Any, page: Page) -> None:
    allocations, mappings = Allocations(driver), Mappings(driver)
    allocations.add(BASE)
    frame = frame_of(driver, allocations, page)
    driver.allocated.clear()
    with pytest.raises(NoMappingError):
        mappings.copy(frame, 7)


def test_memory_is_taken_and_given_back_while_another_thread_lends(driver: Any, page: Page) -> None:
    """As a finalizer does, under the pool's lock, while lending waits for the driver."""
    allocations, lending, done = Allocations(driver), threading.Event(), threading.Event()
    allocations.add(BASE)

    def export(base: int) -> bytes:
        lending.set()
        assert done.wait(BOUND_S)
        return bytes(64)

    driver.export = export
    thread = threading.Thread(target=frame_of, args=(driver, allocations, page))
    thread.start()
    assert lending.wait(BOUND_S)
    driver.allocated[2 * BASE] = 2
    owner = AllocationOwner(allocations, 2 * BASE)
    del owner
    assert 2 * BASE not in driver.allocated
    done.set()
    thread.join(BOUND_S)
