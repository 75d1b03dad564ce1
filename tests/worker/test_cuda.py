"""What the driver's functions give, as Python sees it: on a library in C's place."""

import ctypes
from typing import Any

from gputui.worker.cuda import Driver


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
