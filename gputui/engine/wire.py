"""What gputui sends in its own way over Dask's wire: arrays of a GPU, and tasks.

- CuPy's: Dask's own way (distributed 2026.8, `distributed.protocol.cupy`) needs Numba or RMM at the
  receiving end.
- cuDF's: dask_cudf tells Dask their sizes, but a script that uses cuDF alone does not import it. A
  frame then counted 48 bytes: it was never spilled, and went to other workers as bytes. cuDF's own
  copies to the host and back reach a tenth of the card's rate.
- torch's: Dask's own way calls `Tensor.numpy`, which raises TypeError for a tensor on a device, and
  the task that wants it never ends.

All headers are those that Dask and cuDF write and read, so that either end may be without gputui.

A task is pickled into its message by Dask. A worker that cannot import the function's module fails
to read that message and ends, and so do those that get the task next: after four of them the client
sees KilledWorker (distributed 2026.8; under a nanny it may wait for ever). Here what went wrong is
what the task raises.
"""

from collections.abc import Sequence
from typing import Any

from dask._task_spec import Task
from dask.sizeof import sizeof
from distributed.protocol import pickle
from distributed.protocol.serialize import dask_deserialize, dask_serialize

STAGED_FROM_BYTES = 2**22
"""From which pinned buffers pay."""

_staging: Any = None
"""The pinned buffers of a worker, which copy large arrays faster than CuPy does."""


def register(staging: Any = None) -> None:
    """Have Dask send and receive arrays of CuPy so, from the first one in this process on.

    On a worker, which has pinned buffers, cuDF's frames, too.
    """
    global _staging
    _staging = staging
    for dispatch in (dask_serialize, dask_deserialize):
        dispatch.register_lazy("cupy", _register_cupy)
        if staging:
            dispatch.register_lazy("cudf", _register_cudf)
    if staging:
        sizeof.register_lazy("cudf", _register_cudf_sizes)


def register_torch() -> None:
    """Have Dask measure and send torch's tensors so, from the first one in this process on."""
    sizeof.register_lazy("torch", _register_torch_sizes)
    for dispatch in (dask_serialize, dask_deserialize):
        for module in ("torch", "torchvision"):
            dispatch.register_lazy(module, _register_torch)


def on_host(array: Any) -> Any:
    """Return the bytes of a contiguous array of CuPy's in host memory."""
    import cupy
    import numpy as np

    if _staging and array.nbytes >= STAGED_FROM_BYTES:
        return _staging.to_host(array.data.ptr, array.nbytes)
    return cupy.asnumpy(cupy.ndarray((array.nbytes,), np.uint8, array.data))


def buffer_on_host(frame: Any) -> Any:
    """Return the bytes of one of a cuDF frame's buffers, which may be in host memory already."""
    import cupy

    return on_host(cupy.asarray(frame)) if hasattr(frame, "__cuda_array_interface__") else frame


def on_device(data: memoryview) -> Any:
    """Return bytes of host memory as an array of CuPy's."""
    import cupy
    import numpy as np

    if not _staging or data.nbytes < STAGED_FROM_BYTES:
        return cupy.asarray(np.asarray(data))
    flat = cupy.empty(data.nbytes, np.uint8)
    _staging.to_device(data, flat.data.ptr)
    return flat


def _register_cupy() -> None:
    import cupy

    dask_serialize.register(cupy.ndarray, _send_cupy)
    dask_deserialize.register(cupy.ndarray, _receive_cupy)


def _send_cupy(array: Any) -> tuple[dict[str, Any], list[memoryview]]:
    import cupy

    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = cupy.ascontiguousarray(array)
    header = array.__cuda_array_interface__.copy()
    header["strides"] = tuple(array.strides)
    return header, [memoryview(on_host(array))]


def _receive_cupy(header: dict[str, Any], frames: list[Any]) -> Any:
    import cupy

    flat = on_device(memoryview(frames[0]).cast("B"))
    return cupy.ndarray(header["shape"], header["typestr"], flat.data, strides=header["strides"])


def _register_cudf_sizes() -> None:
    import cudf

    sizeof.register(cudf.DataFrame, _frame_bytes)
    sizeof.register((cudf.Series, cudf.Index), lambda column: int(column.memory_usage()))


def _frame_bytes(frame: Any) -> int:
    columns = sum(int(frame[name].memory_usage(index=False)) for name in frame.columns)
    return columns + int(frame.index.memory_usage())


def _register_cudf() -> None:
    from cudf.core.abc import Serializable

    dask_serialize.register(Serializable, _send_cudf)
    dask_deserialize.register(Serializable, _receive_cudf)


def _send_cudf(value: Any) -> tuple[dict[str, Any], list[memoryview]]:
    header, frames = value.device_serialize()
    _staging.device.synchronize()  # what was sliced was copied just now
    header["writeable"] = (None,) * len(frames)
    return header, [memoryview(buffer_on_host(each)) for each in frames]


def _receive_cudf(header: dict[str, Any], frames: list[Any]) -> Any:
    from cudf.core.abc import Serializable

    parts = [
        on_device(memoryview(frame).cast("B")) if is_cuda else frame
        for is_cuda, frame in zip(header["is-cuda"], frames, strict=True)
    ]
    return Serializable.device_deserialize(header, parts)


def _register_torch_sizes() -> None:
    import torch

    sizeof.register(torch.Tensor, lambda tensor: tensor.numel() * tensor.element_size())


def _register_torch() -> None:
    """Have Dask send tensors in its own way, those of a device from their copies on the host."""
    import torch
    from distributed.protocol.torch import serialize_torch_Tensor

    def send(tensor: Any) -> tuple[dict[str, Any], list[Any]]:
        header, frames = serialize_torch_Tensor(tensor.detach().cpu())
        return header | {
            "requires_grad": tensor.requires_grad,
            "device": tensor.device.type,
        }, frames

    dask_serialize.register(torch.Tensor, send)


HINT = (
    "a worker could not load this task: install what it needs on every host, "
    "or send the modules of a folder with gputui.send_modules(client, folder)"
)


class SentTask:
    """Pickles as a task that is loaded on arrival."""

    __slots__ = ("_task",)

    def __init__(self, task: Any) -> None:
        self._task = task

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        buffers: list[Any] = []
        data = pickle.dumps(self._task, buffer_callback=buffers.append)
        return load, (self._task.key, data, buffers)


def load(key: Any, data: bytes, buffers: Sequence[Any]) -> Any:
    """Return the task, or one that raises why it cannot be read."""
    try:
        return pickle.loads(data, buffers=buffers)
    except Exception as error:
        error.add_note(HINT)
        return Task(key, _fail, error)


def _fail(error: Exception) -> None:
    raise error
