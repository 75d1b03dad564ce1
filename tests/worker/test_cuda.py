"""What the driver's functions give, and copies through pinned buffers, on what stands in for it."""

import ctypes
from typing import Any

import numpy as np
import pytest

from gputui.worker import cuda
from gputui.worker.cuda import Driver, Staging


class Library:
    """Functions of the CUDA driver that succeed, for a device with this UUID."""

    def __init__(self, uuid: bytes) -> None:
        self._uuid = uuid

    def cuDeviceGetUuid_v2(self, data: Any, device: Any) -> int:  # noqa: N802
        ctypes.memmove(data, self._uuid, len(self._uuid))
        return 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: 0


def test_a_uuid_with_a_byte_that_is_zero_is_whole() -> None:
    driver = Driver()
    driver.__dict__["_library"] = Library(bytes.fromhex("eb2bf7441eb99ec80011223344556600"))
    assert driver.uuid() == "GPU-eb2bf744-1eb9-9ec8-0011-223344556600"


def test_a_devices_free_bytes_need_no_cupy() -> None:
    class Described(Library):
        def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802
            free._obj.value, total._obj.value = 5, 7
            return 0

    driver = Driver()
    driver.__dict__["_library"] = Described(b"")
    assert driver.free_bytes() == 5


class FakeDriver:
    """A device whose memory is the host's; `failing` is the copy, counted from 1, that fails."""

    def __init__(self, failing: int = 0) -> None:
        self.pinned_bytes = 0
        self.copies = 0
        self.failing = failing

    def synchronize(self) -> None:
        return

    def pinned(self, size: int) -> Any:
        self.pinned_bytes += size
        return np.zeros(size, "u1")

    def copy_to_host(self, target: int, source: int, size: int) -> None:
        self.copies += 1
        if self.copies == self.failing:
            raise OSError(700, "cuMemcpyDtoHAsync gave CUDA error 700")
        ctypes.memmove(target, source, size)

    copy_to_device = copy_to_host


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "PIECE_BYTES", 1000)


@pytest.mark.parametrize("size", [0, 1, 999, 3000, 3001, 12_345])
def test_bytes_of_any_number_come_out_and_go_back_as_they_were(size: int) -> None:
    driver: Any = FakeDriver()
    both = Staging(driver, threads=3)
    device = np.random.default_rng(0).integers(0, 256, size, "u1")
    out = both.to_host(device.ctypes.data, size)
    np.testing.assert_array_equal(out, device)
    again = np.zeros(size, "u1")
    both.to_device(memoryview(out), again.ctypes.data)
    np.testing.assert_array_equal(again, device)
    assert driver.pinned_bytes <= 3000


def test_a_copy_that_fails_is_an_error_and_the_next_one_works() -> None:
    driver: Any = FakeDriver(failing=2)
    out = Staging(driver, threads=2)
    device = np.ones(5000, "u1")
    with pytest.raises(OSError, match="700"):
        out.to_host(device.ctypes.data, 5000)
    np.testing.assert_array_equal(out.to_host(device.ctypes.data, 5000), device)
