"""Frames of cuDF without dask_cudf, in the place of whose library stands one of the same calls."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gputui.engine import wire
from gputui.worker.memory import DeviceMemory, device_bytes


class Buffer:
    """Memory of a device, that nothing but the worker's own copies reads."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.__cuda_array_interface__ = {"version": 3}


class Serializable:
    @classmethod
    def device_deserialize(cls, header: dict[str, Any], frames: list[Any]) -> "Table":
        assert header["lengths"] == [5, 3]
        buffer, names = frames
        assert isinstance(buffer, Buffer)
        return Table(buffer.data, bytes(names))


class Table(Serializable):
    def __init__(self, data: np.ndarray, names: bytes) -> None:
        self.data, self.names = data, names

    def device_serialize(self) -> tuple[dict[str, Any], list[Any]]:
        header = {"is-cuda": [True, False], "lengths": [5, 3]}
        return header, [Buffer(self.data), memoryview(self.names)]


class Index:
    def __init__(self, size: int) -> None:
        self._size = size

    def memory_usage(self, deep: bool = False) -> int:
        return self._size


class Series:
    def __init__(self, size: int) -> None:
        self._size = size
        self.index = Index(8)

    def memory_usage(self, index: bool = True, deep: bool = False) -> int:
        return self._size + index * self.index.memory_usage()


class DataFrame:
    def __init__(self, columns: dict[str, Series]) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.index = Index(16)

    def __getitem__(self, name: str) -> Series:
        return self._columns[name]


@pytest.fixture(autouse=True)
def cudf(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = {
        name: ModuleType(name)
        for name in ("cudf", "cudf.comm", "cudf.comm.serialize", "cudf.core.abc", "cupy")
    }
    for kind in (Index, Series, DataFrame, Serializable, Table):
        monkeypatch.setattr(kind, "__module__", "cudf.core.frame")
        setattr(modules["cudf"], kind.__name__, kind)
    modules["cudf"].comm = modules["cudf.comm"]
    modules["cudf.core.abc"].Serializable = Serializable
    modules["cupy"].asarray = lambda buffer: buffer
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for registry in (sizeof, dask_serialize, dask_deserialize):
        monkeypatch.setattr(registry, "_lazy", dict(registry._lazy))
        monkeypatch.setattr(registry, "_lookup", dict(registry._lookup))
    monkeypatch.setattr(wire, "_staging", None)
    monkeypatch.setattr(wire, "on_host", lambda buffer: buffer.data.copy())
    monkeypatch.setattr(wire, "on_device", lambda view: Buffer(np.asarray(view).copy()))
    wire.register(SimpleNamespace(device=SimpleNamespace(synchronize=lambda: None)))


def test_a_frame_counts_with_all_its_columns_and_its_index() -> None:
    frame = DataFrame({"a": Series(2**30), "b": Series(2**20)})
    assert device_bytes([frame]) == 2**30 + 2**20 + 16


def test_a_series_counts_with_its_index() -> None:
    assert device_bytes({"x": Series(1000)}) == 1008


def test_a_table_leaves_the_device_and_comes_back_by_the_workers_own_copies(tmp_path: Path) -> None:
    memory = DeviceMemory(str(tmp_path), 1e9, measure=lambda value: 5 * isinstance(value, Table))
    memory["table"] = Table(np.arange(5, dtype="u1"), b"abc")
    assert memory.make_room()
    assert not memory.device_bytes
    table: Any = memory["table"]
    np.testing.assert_array_equal(table.data, np.arange(5))
    assert (table.names, memory.device_bytes) == (b"abc", 5)
