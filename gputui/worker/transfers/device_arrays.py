"""The arrays of a GPU, taken apart and put together: CuPy's, cuDF's and torch's.

Each reducer returns a rebuilding function and what it needs, as pickle has it. The bytes are a
`MappedBytes`, from which the reader copies on the device, or where that cannot be, a host buffer.
Nothing here imports a library before there is an array of its own.
"""

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gputui.engine.cupy_arrays import on_device, on_host
from gputui.worker.cuda import driver
from gputui.worker.cudf_frames import buffer_on_host
from gputui.worker.transfers.cuda_ipc import Lender, MappedBytes, mappings
from gputui.worker.transfers.loans import Ticket

_taking = threading.local()


def reducer(kind: type) -> Callable[[Any, Lender], Any] | None:
    """Return the function that takes an array of this type apart; None for all other types."""
    if kind.__module__.startswith("cudf.") and hasattr(kind, "device_serialize"):
        return _reduce_cudf
    return _REDUCERS.get((kind.__module__, kind.__name__))


@contextmanager
def taking(ticket: Ticket) -> Iterator[None]:
    """Make values that are rebuilt in this context copy from this loan."""
    _taking.ticket = ticket
    try:
        yield
    finally:
        _taking.ticket = None


def _reduce_cupy(array: Any, lender: Lender) -> Any:
    import cupy

    lender.settle_device()
    if not array.flags.forc:
        array = cupy.ascontiguousarray(array)
        cupy.cuda.get_current_stream().synchronize()
    frame: Any = lender.device_frame(array.data.ptr, array.nbytes, array)
    if frame is None:
        frame = pickle.PickleBuffer(on_host(array))
    return _rebuild_cupy, (frame, array.shape, array.dtype, array.strides)


def _rebuild_cupy(frame: Any, shape: Any, dtype: Any, strides: Any) -> Any:
    import cupy

    if isinstance(frame, MappedBytes):
        flat = cupy.empty(frame.size, "u1")
        mappings.copy(frame, _taking.ticket, flat.data.ptr)
    else:
        flat = on_device(memoryview(frame))
    return cupy.ndarray(shape, dtype, flat.data, strides=strides)


def _reduce_cudf(value: Any, lender: Lender) -> Any:
    """Take a frame, a series or an index apart into the buffers that Dask would send."""
    lender.settle_device()
    header, frames = value.device_serialize()
    driver.synchronize()  # what was sliced was copied just now
    return _rebuild_cudf, (header, [_cudf_part(frame, lender) for frame in frames])


def _cudf_part(frame: Any, lender: Lender) -> Any:
    where = getattr(frame, "__cuda_array_interface__", None)
    if where is None:
        return pickle.PickleBuffer(frame)
    lent: Any = lender.device_frame(where["data"][0], frame.nbytes, frame)
    return lent or pickle.PickleBuffer(buffer_on_host(frame))


def _rebuild_cudf(header: dict[str, Any], parts: list[Any]) -> Any:
    import cupy
    from cudf.core.abc import Serializable

    frames = []
    for part in parts:
        if isinstance(part, MappedBytes):
            frames.append(cupy.empty(part.size, "u1"))
            mappings.copy(part, _taking.ticket, frames[-1].data.ptr)
        else:
            frames.append(memoryview(part))
    return Serializable.device_deserialize(header, frames)


def _reduce_torch(tensor: Any, lender: Lender) -> Any:
    """Take a dense tensor of a GPU apart; None for all others, which pickle as torch has it."""
    import torch

    if not tensor.is_cuda:
        return None
    lender.settle_device()
    if tensor.layout is not torch.strided or tensor.is_conj():
        return None
    plain = tensor.detach().contiguous()
    torch.cuda.current_stream().synchronize()
    size = plain.numel() * plain.element_size()
    frame: Any = lender.device_frame(plain.data_ptr(), size, plain)
    if frame is None:
        frame = pickle.PickleBuffer(plain.view(-1).view(torch.uint8).cpu().numpy())
    return _rebuild_torch, (frame, tuple(plain.shape), plain.dtype, tensor.requires_grad)


def _rebuild_torch(frame: Any, shape: Any, dtype: Any, requires_grad: bool) -> Any:
    import torch

    tensor = torch.empty(shape, dtype=dtype, device="cuda")
    if isinstance(frame, MappedBytes):
        mappings.copy(frame, _taking.ticket, tensor.data_ptr())
    else:
        flat = tensor.view(-1).view(torch.uint8)
        flat.copy_(torch.frombuffer(bytearray(frame), dtype=torch.uint8))
    return tensor.requires_grad_(requires_grad)


_REDUCERS: dict[tuple[str, str], Callable[[Any, Lender], Any]] = {
    ("cupy", "ndarray"): _reduce_cupy,
    ("torch", "Tensor"): _reduce_torch,
}
