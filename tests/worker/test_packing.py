"""Values taken apart and put together in one process, and what becomes of a loan meanwhile."""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gputui.worker.transfers import packing
from gputui.worker.transfers.cuda_ipc import Loan, Reader
from gputui.worker.transfers.loans import Location, NotHeldError, Page, Ticket
from gputui.worker.transfers.packing import HOST_FROM_BYTES, SharedBuffer, pack, unpack

ARRAY = np.arange(HOST_FROM_BYTES, dtype="u1")


@pytest.fixture
def loan() -> Iterator[Loan]:
    page = Page()
    here = Location.here(page.descriptor, device="")
    one = Loan(page, Ticket(here, *page.take()), Reader("", here), False)
    yield one
    one.release()


@pytest.mark.parametrize(
    "view",
    [
        memoryview(ARRAY),
        memoryview(np.arange(10.0).reshape(2, -1)),
        memoryview(bytes(10)),
        memoryview(ARRAY.reshape(-1, 2))[:0],
        memoryview(ARRAY)[::2],
    ],
    ids=["bytes", "numbers", "small", "empty", "strided"],
)
def test_a_view_of_memory_arrives_as_one(loan: Loan, view: memoryview) -> None:
    packed = pack([view], loan)
    [taken] = unpack(packed, loan.ticket)
    assert isinstance(taken, memoryview)
    assert (taken.format, taken.shape, taken == view) == (view.format, view.shape, True)


def test_what_was_lent_is_mapped_as_long_as_it_is_used_and_keeps_no_descriptor(loan: Loan) -> None:
    unpack(pack("opens the page of loans", loan), loan.ticket)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    packed = pack([ARRAY, ARRAY + 1], loan)
    value = unpack(packed, loan.ticket)
    loan.release()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert Path("/proc/self/maps").read_text().count("memfd:gputui-array") == 2
    del value
    assert "memfd:gputui-array" not in Path("/proc/self/maps").read_text()


def test_what_its_owner_let_go_of_meanwhile_does_not_count(loan: Loan) -> None:
    packed = pack(ARRAY[:10], loan)
    loan.release()
    with pytest.raises(NotHeldError):
        unpack(packed, loan.ticket)


def test_a_location_that_says_anything_but_a_location_is_none() -> None:
    page = Page()
    here = Location.here(page.descriptor, device="GPU-0")
    said = asdict(here)
    assert Location.parse(said) == here
    for wrong in (None, "text", {}, {**said, "pid": "1"}, {**said, "device": 1}):
        assert Location.parse(wrong) is None


@pytest.mark.parametrize("name", ["boot_id", "pid_namespace", "ipc_namespace", "user"])
def test_a_worker_elsewhere_is_not_near(name: str) -> None:
    page = Page()
    said = asdict(Location.here(page.descriptor, device="GPU-0"))
    here, there = (Location.parse({**said, "pid": pid}) for pid in (1, 2))
    other = Location.parse({**said, "pid": 2, name: "other" if name == "boot_id" else 7})
    assert here and there and other
    assert here.near(there)
    assert not here.near(other)


@pytest.mark.parametrize(
    ("here", "there", "opens"),
    [
        ("GPU-0", "GPU-1", True),
        ("GPU-0", "", False),
        ("", "", False),
        ("MIG-0", "MIG-1", False),
        ("MIG-0", "GPU-1", False),
        ("MIG-0", "MIG-0", True),
    ],
)
def test_device_memory_is_lent_wherever_the_driver_maps_it(
    here: str, there: str, *, opens: bool
) -> None:
    page = Page()
    one, other = (Location.here(page.descriptor, device=each) for each in (here, there))
    assert one.opens(other) is other.opens(one) is opens


class Buffer:
    """Of a device, as cuDF has it: copied to the host on request."""

    def __init__(self, data: bytes) -> None:
        self.data, self.nbytes = data, len(data)
        self.__cuda_array_interface__ = {"data": (0, False), "shape": (self.nbytes,)}

    def memoryview(self) -> memoryview:
        return memoryview(self.data)


class Frame:
    """Names its buffers to Dask as cuDF's `Serializable` does."""

    def __init__(self, columns: list[bytes]) -> None:
        self.columns = columns

    def device_serialize(self) -> tuple[dict[str, Any], list[Buffer]]:
        return {"columns": len(self.columns)}, [Buffer(column) for column in self.columns]

    @classmethod
    def device_deserialize(cls, header: dict[str, Any], frames: list[memoryview]) -> "Frame":
        assert header["columns"] == len(frames)
        return cls([bytes(frame) for frame in frames])


def test_a_frame_of_cudf_goes_buffer_by_buffer_wherever_it_is_nested(
    loan: Loan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through host memory here, without a device: what cannot be lent by a handle."""
    module = ModuleType("cudf.core.abc")
    module.Serializable = Frame  # type: ignore[attr-defined]
    for name in ("cudf", "cudf.core", "cudf.core.abc", "cupy"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Frame, "__module__", "cudf.core.dataframe")
    monkeypatch.setattr(packing, "buffer_on_host", Buffer.memoryview)
    waits: list[bool] = []
    monkeypatch.setattr(packing.driver, "synchronize", lambda: waits.append(True))
    columns = [b"small", bytes(ARRAY)]
    packed = pack({"nested": [Frame(columns)]}, loan)
    assert [type(part) is SharedBuffer for part in packed] == [False, False, True]
    value = unpack(packed, loan.ticket)
    assert value["nested"][0].columns == columns
    assert waits
