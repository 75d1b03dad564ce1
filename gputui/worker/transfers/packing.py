"""A value taken apart into a pickle, host buffers and device arrays, and put together again.

One pass of pickle, protocol 5, finds what is large wherever it is nested. NumPy, pandas and Arrow
hand out their buffers by themselves; the arrays of CuPy, cuDF and torch are reduced here, each to
a function that rebuilds it and its bytes: a `MappedBytes`, from which the reader copies on the
device, or where that cannot be, a host buffer. What is lent goes as a descriptor or a handle, what
is small goes along. Runs off the event loop, and imports no library before there is an array of it.

A host buffer goes through a memory file in no folder: its owner writes it, which allocates the
pages, so that a machine without memory answers with an error where a store into a mapping would end
the process by SIGBUS; its reader maps it. The owner closes the file when the reader has it: the
bytes count once. After any death the kernel frees a file with the last descriptor or mapping.
Source: memfd_create(2).
"""

import ctypes
import io
import mmap
import os
import pickle
import weakref
from typing import Any

import cloudpickle
import numpy as np
from dask.sizeof import sizeof

from gputui.engine.wire import buffer_on_host, on_device, on_host
from gputui.model.frozen import frozen
from gputui.model.usage import Way
from gputui.worker.cuda import driver
from gputui.worker.transfers.cuda_ipc import DEVICE_FROM_BYTES, Loan, MappedBytes, mappings
from gputui.worker.transfers.loans import Location, Ticket, check_held, moved

HOST_FROM_BYTES = 2**22
"""From which a host buffer is faster through memory that both map than over TLS."""
MOST_FILES = 128
"""In one loan, each with a descriptor; buffers after these go along."""
NAME = "gputui-array"
MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@frozen
class SharedBuffer:
    """A host buffer in a memory file of its owner's."""

    descriptor: int
    size: int


Parts = tuple[SharedBuffer | pickle.PickleBuffer, ...]
"""A value as it goes over the comm; the first part is the pickle itself."""


def pack(value: object, loan: Loan) -> Parts:
    """Take a value apart; raises whatever its pickling does."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, buffers, loan).dump(value)
    pickled = pickle.PickleBuffer(file.getbuffer())
    return tuple(_part(buffer, loan) for buffer in (pickled, *buffers))


def _part(buffer: pickle.PickleBuffer, loan: Loan) -> SharedBuffer | pickle.PickleBuffer:
    raw = buffer.raw()
    if raw.nbytes < HOST_FROM_BYTES or len(loan.descriptors) >= MOST_FILES:
        return buffer
    try:
        descriptor = _put(raw)
    except OSError:
        return buffer
    loan.descriptors.append(descriptor)
    return SharedBuffer(descriptor, raw.nbytes)


def _put(buffer: memoryview) -> int:
    """Return the descriptor of a new memory file that holds these bytes; raises OSError."""
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
    try:
        written = 0
        while written < buffer.nbytes:
            written += os.write(descriptor, buffer[written:])
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _mapped(owner: Location, descriptor: int, size: int) -> memoryview:
    """Map the file behind an owner's descriptor, for as long as the view lives; raises OSError.

    Python's own mmap would keep a descriptor for each (until 3.13).
    """
    opened = owner.open(descriptor)
    try:
        if os.fstat(opened).st_size != size:
            raise OSError(f"process {owner.pid} has another file behind {descriptor}")
        access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_POPULATE
        address = _libc.mmap(None, size, access, flags, opened, 0)
    finally:
        os.close(opened)
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    memory = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False
    moved(Way.MEMORY_FILE, size)
    return memoryview(memory).cast("B")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles as Dask does, but hands out the buffers of arrays wherever they are nested."""

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer], loan: Loan) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._loan = loan

    def reducer_override(self, obj: Any) -> Any:
        """Return how an array is put together again."""
        kind = type(obj)
        if kind is np.ndarray and not (obj.flags.forc or obj.dtype.hasobject):
            return np.ascontiguousarray(obj).__reduce_ex__(5)
        if kind is memoryview:  # cloudpickle would make bytes of it
            return memoryview, (np.asarray(obj, order="C"),)
        if (kind.__module__, kind.__name__) == ("cupy", "ndarray"):
            return _reduce_cupy(obj, self._loan)
        if kind.__module__.startswith("cudf.") and hasattr(kind, "device_serialize"):
            return _reduce_cudf(obj, self._loan)
        if (kind.__module__, kind.__name__) == ("torch", "Tensor"):
            reduced = _reduce_torch(obj, self._loan)
            return super().reducer_override(obj) if reduced is None else reduced
        return super().reducer_override(obj)


def worth_lending(value: object) -> bool:
    """Return whether a value may hold buffers that are faster to lend than to send."""
    return int(sizeof(value)) >= DEVICE_FROM_BYTES


def unpack(parts: Parts, ticket: Ticket) -> object:
    """Rebuild a value; raises OSError if its owner released it, and whatever unpickling does."""
    pickled, *buffers = (_taken(part, ticket) for part in parts)
    value: object = pickle.loads(pickled, buffers=buffers)
    check_held(ticket)
    return value


def _taken(part: SharedBuffer | Any, ticket: Ticket) -> Any:
    if not isinstance(part, SharedBuffer):
        moved(Way.CONNECTION, memoryview(part).nbytes)
        return part
    return _mapped(ticket.owner, part.descriptor, part.size)


def _reduce_cupy(array: Any, loan: Loan) -> Any:
    import cupy

    loan.settle_device()
    if not array.flags.forc:
        array = cupy.ascontiguousarray(array)
        cupy.cuda.get_current_stream().synchronize()
    frame: Any = loan.device_frame(array.data.ptr, array.nbytes, array)
    if frame is None:
        frame = pickle.PickleBuffer(on_host(array))
    return _rebuild_cupy, (frame, array.shape, array.dtype, array.strides)


def _rebuild_cupy(frame: Any, shape: Any, dtype: Any, strides: Any) -> Any:
    import cupy

    flat = _copied(frame) if isinstance(frame, MappedBytes) else on_device(memoryview(frame))
    return cupy.ndarray(shape, dtype, flat.data, strides=strides)


def _copied(frame: MappedBytes) -> Any:
    """Return the lent bytes in an array of this device."""
    import cupy

    flat = cupy.empty(frame.size, "u1")
    mappings.copy(frame, flat.data.ptr)
    return flat


def _reduce_cudf(value: Any, loan: Loan) -> Any:
    """Take a frame, a series or an index apart into the buffers that Dask would send."""
    loan.settle_device()
    header, frames = value.device_serialize()
    driver.synchronize()  # what was sliced was copied just now
    return _rebuild_cudf, (header, [_cudf_part(frame, loan) for frame in frames])


def _cudf_part(frame: Any, loan: Loan) -> Any:
    where = getattr(frame, "__cuda_array_interface__", None)
    if where is None:
        return pickle.PickleBuffer(frame)
    lent: Any = loan.device_frame(where["data"][0], frame.nbytes, frame)
    return lent or pickle.PickleBuffer(buffer_on_host(frame))


def _rebuild_cudf(header: dict[str, Any], parts: list[Any]) -> Any:
    from cudf.core.abc import Serializable

    frames = [
        _copied(part) if isinstance(part, MappedBytes) else memoryview(part) for part in parts
    ]
    return Serializable.device_deserialize(header, frames)


def _reduce_torch(tensor: Any, loan: Loan) -> Any:
    """Take a dense tensor of a GPU apart; None for all others, which pickle as torch has it."""
    import torch

    if not tensor.is_cuda:
        return None
    loan.settle_device()
    if tensor.layout is not torch.strided or tensor.is_conj():
        return None
    plain = tensor.detach().contiguous()
    torch.cuda.current_stream().synchronize()
    size = plain.numel() * plain.element_size()
    frame: Any = loan.device_frame(plain.data_ptr(), size, plain)
    if frame is None:
        frame = pickle.PickleBuffer(plain.view(-1).view(torch.uint8).cpu().numpy())
    return _rebuild_torch, (frame, tuple(plain.shape), plain.dtype, tensor.requires_grad)


def _rebuild_torch(frame: Any, shape: Any, dtype: Any, requires_grad: bool) -> Any:
    import torch

    tensor = torch.empty(shape, dtype=dtype, device="cuda")
    if isinstance(frame, MappedBytes):
        mappings.copy(frame, tensor.data_ptr())
    else:
        flat = tensor.view(-1).view(torch.uint8)
        flat.copy_(torch.frombuffer(bytearray(frame), dtype=torch.uint8))
    return tensor.requires_grad_(requires_grad)
