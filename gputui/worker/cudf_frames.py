"""cuDF's frames as a worker has to know them: how large they are.

dask_cudf tells Dask the same, but a script that uses cuDF alone does not import it. A frame then
counted 48 bytes: it was never spilled, and went to other workers as bytes.
"""

from typing import Any

from dask.sizeof import sizeof


def register() -> None:
    """Have Dask measure frames so, from the first one in this process on."""
    sizeof.register_lazy("cudf", _register_sizes)


def _register_sizes() -> None:
    import cudf

    sizeof.register(cudf.DataFrame, _frame_bytes)
    sizeof.register((cudf.Series, cudf.Index), lambda column: int(column.memory_usage()))


def _frame_bytes(frame: Any) -> int:
    columns = sum(int(frame[name].memory_usage(index=False)) for name in frame.columns)
    return columns + int(frame.index.memory_usage())
