"""Frames of cuDF without dask_cudf, in the place of whose library stands one of the same calls."""

import sys
from types import ModuleType
from typing import Any

import pytest
from dask.sizeof import sizeof

from gputui.worker import cudf_frames
from gputui.worker.memory import device_bytes


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
    module: Any = ModuleType("cudf")
    for kind in (Index, Series, DataFrame):
        monkeypatch.setattr(kind, "__module__", "cudf.core.frame")
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "cudf", module)
    monkeypatch.setattr(sizeof, "_lazy", dict(sizeof._lazy))
    monkeypatch.setattr(sizeof, "_lookup", dict(sizeof._lookup))
    cudf_frames.register()


def test_a_frame_counts_with_all_its_columns_and_its_index() -> None:
    frame = DataFrame({"a": Series(2**30), "b": Series(2**20)})
    assert device_bytes([frame]) == 2**30 + 2**20 + 16


def test_a_series_counts_with_its_index() -> None:
    assert device_bytes({"x": Series(1000)}) == 1008
