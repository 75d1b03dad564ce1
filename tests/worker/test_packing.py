"""Values taken apart and put together in one process, and what becomes of a loan meanwhile."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from gputui.worker.transfers.loans import Loan, NotHeldError, Page, Ticket
from gputui.worker.transfers.location import Location
from gputui.worker.transfers.packing import (
    HOST_FROM_BYTES,
    DamagedError,
    Lender,
    SharedBuffer,
    unpack,
)

ARRAY = np.arange(HOST_FROM_BYTES, dtype="u1")


@pytest.fixture
def loan() -> Iterator[Loan]:
    page = Page()
    one = Loan(page, page.take()[0])
    yield one
    one.release()


def ticket_of(loan: Loan) -> Ticket:
    return Ticket(Location.here(loan.page.descriptor, device=False), loan.slot, 1)


@pytest.mark.parametrize("check", [False, True])
def test_what_was_packed_is_put_together_again(loan: Loan, check: bool) -> None:
    packed = Lender(loan, None, check=check).pack({"array": ARRAY, "text": "text"})
    value = unpack(packed, ticket_of(loan), {})
    assert isinstance(value, dict)
    np.testing.assert_array_equal(value["array"], ARRAY)
    assert value["text"] == "text"


def test_a_buffer_that_was_changed_on_the_way_is_found_by_its_checksum(loan: Loan) -> None:
    packed = Lender(loan, None, check=True).pack(ARRAY)
    [shared] = [part for part in packed.parts if isinstance(part, SharedBuffer)]
    os.pwrite(shared.descriptor, b"\xff", 0)
    with pytest.raises(DamagedError):
        unpack(packed, ticket_of(loan), {})


def test_what_its_owner_let_go_of_meanwhile_does_not_count(loan: Loan) -> None:
    packed = Lender(loan, None, check=False).pack(ARRAY[:10])
    ticket = ticket_of(loan)
    loan.release()
    with pytest.raises(NotHeldError):
        unpack(packed, ticket, {})


def test_a_location_that_says_anything_but_a_location_is_none() -> None:
    page = Page()
    here = Location.here(page.descriptor, device=True)
    said = here.described()
    assert Location.parse(said) == here
    for wrong in (None, "text", {}, {**said, "pid": "1"}, {**said, "device": 1}):
        assert Location.parse(wrong) is None


@pytest.mark.parametrize("name", ["boot_id", "pid_namespace", "ipc_namespace", "user"])
def test_a_worker_elsewhere_is_not_near(name: str) -> None:
    page = Page()
    said = Location.here(page.descriptor, device=True).described()
    here, there = (Location.parse({**said, "pid": pid}) for pid in (1, 2))
    other = Location.parse({**said, "pid": 2, name: "other" if name == "boot_id" else 7})
    assert here and there and other
    assert here.near(there)
    assert not here.near(other)
