"""cuDF's frames as a worker has to know them: how large they are, and how they leave the device.

dask_cudf tells Dask their sizes, but a script that uses cuDF alone does not import it. A frame then
counted 48 bytes: it was never spilled, and went to other workers as bytes. Their memory is copied
to the host and back through the worker's pinned buffers, as CuPy's is; cuDF's own copies reach a
tenth of the card's rate. The header is cuDF's, so that either end may be without gputui.
"""

from typing import Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from gputui.engine.cupy_arrays import on_device, on_host
from gputui.worker.cuda import driver


def register() -> None:
    """Have Dask measure and copy frames so, from the first one in this process on."""
    sizeof.register_lazy("cudf", _register_sizes)
    for kind in (dask_serialize, dask_deserialize):
        kind.register_lazy("cudf", _register_copies)


def _register_sizes() -> None:
    import cudf

    sizeof.register(cudf.DataFrame, _frame_bytes)
    sizeof.register((cudf.Series, cudf.Index), lambda column: int(column.memory_usage()))


def _frame_bytes(frame: Any) -> int:
    columns = sum(int(frame[name].memory_usage(index=False)) for name in frame.columns)
    return columns + int(frame.index.memory_usage())


def _register_copies() -> None:
    from cudf.core.abc import Serializable

    dask_serialize.register(Serializable, _serialize)
    dask_deserialize.register(Serializable, _deserialize)


def _serialize(value: Any) -> tuple[dict[str, Any], list[memoryview]]:
    header, frames = value.device_serialize()
    driver.synchronize()  # what was sliced was copied just now
    header["writeable"] = (None,) * len(frames)
    return header, [memoryview(buffer_on_host(each)) for each in frames]


def buffer_on_host(frame: Any) -> Any:
    """Return the bytes of one of a frame's buffers, which may be in host memory already."""
    import cupy

    if not hasattr(frame, "__cuda_array_interface__"):
        return frame
    return on_host(cupy.asarray(frame))


def _deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    from cudf.core.abc import Serializable

    parts = [
        on_device(memoryview(frame).cast("B")) if is_cuda else frame
        for is_cuda, frame in zip(header["is-cuda"], frames, strict=True)
    ]
    return Serializable.device_deserialize(header, parts)
