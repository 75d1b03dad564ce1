"""What a GPU worker holds, on a device that is stood in for by a class of its own."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gputui.worker.memory import DeviceMemory, SpilledValue, device_bytes


class OnDevice:
    """An array on a device that counts how many bytes it has given out."""

    allocated = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        OnDevice.allocated += len(data)

    def __del__(self) -> None:
        OnDevice.allocated -= len(self.data)


@dask_serialize.register(OnDevice)
def _to_host(value: OnDevice) -> tuple[dict[str, Any], list[bytes]]:
    return {}, [value.data]


@dask_deserialize.register(OnDevice)
def _to_device(header: dict[str, Any], frames: list[Any]) -> OnDevice:
    return OnDevice(bytes(frames[0]))


def measure(value: object) -> int:
    return len(value.data) if isinstance(value, OnDevice | Immovable) else 0


@pytest.fixture
def memory(tmp_path: Path) -> DeviceMemory:
    """Room for 100 bytes on the device and 1 MB in host memory."""
    one = DeviceMemory(str(tmp_path), 1e6, measure)
    one.limit_bytes = 100
    return one


def letters(text: str) -> OnDevice:
    return OnDevice(text.encode() * 40)


def test_what_was_not_used_for_longest_leaves_the_device_first(memory: DeviceMemory) -> None:
    memory["a"], memory["b"] = letters("a"), letters("b")
    assert memory["a"]
    memory["c"] = letters("c")
    assert memory.device_bytes == OnDevice.allocated == 80
    assert isinstance(memory._host["b"], SpilledValue)


def test_a_value_comes_back_to_the_device_when_it_is_used(memory: DeviceMemory) -> None:
    for name in "abc":
        memory[name] = letters(name)
    assert memory["a"].data == b"a" * 40
    assert memory.device_bytes == 80
    assert sorted(memory) == ["a", "b", "c"] and len(memory) == 3


def test_device_bytes_never_count_as_host_bytes(memory: DeviceMemory) -> None:
    memory.limit_bytes = None
    memory["a"] = OnDevice(bytes(2_000_000))
    assert memory.spilled_total == (0, 0)
    assert not memory.fast


def test_what_host_memory_cannot_hold_goes_to_disk_and_comes_back(
    memory: DeviceMemory, tmp_path: Path
) -> None:
    for number in range(4):
        memory[number] = OnDevice(bytes([number]) * 700_000)
    assert memory.spilled_total[1] > 1_000_000
    assert [memory[number].data[0] for number in range(4)] == [0, 1, 2, 3]


def test_values_in_host_memory_are_written_to_disk_on_request(memory: DeviceMemory) -> None:
    memory["text"] = "x" * 1000
    assert memory.evict() > 1000
    assert memory["text"] == "x" * 1000


def test_a_value_larger_than_the_limit_stays_by_itself(memory: DeviceMemory) -> None:
    memory["a"] = letters("a")
    memory["big"] = OnDevice(bytes(500))
    assert memory.device_bytes == 500


def test_deleting_frees_a_value_wherever_it_is(memory: DeviceMemory) -> None:
    for name in "abc":
        memory[name] = letters(name)
    for name in "abc":
        del memory[name]
    assert (len(memory), memory.device_bytes, OnDevice.allocated) == (0, 0, 0)
    with pytest.raises(KeyError):
        del memory["a"]


def test_an_allocation_in_a_task_makes_room_while_others_read(memory: DeviceMemory) -> None:
    memory.limit_bytes = None
    for number in range(50):
        memory[number] = letters(str(number % 10))
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=_catching, args=(failures, work))
        for work in (
            lambda: [memory.make_room() for _ in range(200)],
            lambda: [memory[number % 50] for number in range(200)],
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failures
    assert [memory[number].data[:1] for number in range(50)] == [
        str(number % 10).encode() for number in range(50)
    ]


def _catching(failures: list[BaseException], work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException as error:
        failures.append(error)


class Immovable:
    data = bytes(60)

    def __reduce__(self) -> Any:
        raise TypeError("cannot be moved")


def test_a_value_that_cannot_be_moved_stays_on_the_device(memory: DeviceMemory) -> None:
    memory["a"] = Immovable()
    memory["b"] = OnDevice(bytes(80))
    assert memory.device_bytes == 140
    assert isinstance(memory["a"], Immovable)


def test_a_value_that_cannot_be_moved_keeps_no_other_from_moving(memory: DeviceMemory) -> None:
    memory["b"] = letters("b")
    memory["a"] = Immovable()
    memory["c"] = OnDevice(bytes(80))
    assert not memory.on_device("b") and memory.on_device("a")
    assert memory["b"].data == letters("b").data  # type: ignore[attr-defined]
    del memory["a"]
    memory["a"] = letters("a")
    memory["d"] = OnDevice(bytes(80))
    assert not memory.on_device("a")


def test_host_values_hold_nothing_on_the_device() -> None:
    assert device_bytes({"a": [1.0, "text", (b"bytes",)]}) == 0


def test_a_value_leaves_the_device_only_when_its_work_is_done(memory: DeviceMemory) -> None:
    memory["key"] = pending = letters("a")
    memory.settle = lambda: setattr(pending, "data", b"done" * 10)
    assert memory.make_room()
    assert memory["key"].data == b"done" * 10  # type: ignore[attr-defined]
