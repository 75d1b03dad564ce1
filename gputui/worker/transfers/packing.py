"""A value taken apart into a pickle, host buffers and device arrays, and put together again.

One pass of pickle, protocol 5, finds what is large wherever it is nested: NumPy, pandas and Arrow
hand out their buffers by themselves, `device_arrays` knows the arrays of a GPU. What is lent goes
as a descriptor or a handle, what is small goes along. Runs off the event loop.
"""

import io
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
from dask.sizeof import sizeof

from gputui.worker.transfers import device_arrays, shared_memory
from gputui.worker.transfers.cuda_ipc import DEVICE_FROM_BYTES, Lender
from gputui.worker.transfers.loans import Ticket, check_held
from gputui.worker.transfers.shared_memory import MappedFile, Places, mapped_files

HOST_FROM_BYTES = 2**22
"""From which a host buffer is faster through memory that both map than over TLS."""
MOST_FILES = 128
"""In one loan, each with a descriptor; buffers after these go along."""


class DamagedError(OSError):
    """A value that arrived differs, by its checksum, from the one that was lent."""


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """A host buffer in a memory file."""

    offered: bool
    """Whether it is the reader's file, or a new one of its owner's."""
    descriptor: int
    size: int
    checksum: int | None


Parts = tuple[SharedBuffer | pickle.PickleBuffer, ...]
"""A value as it goes over the comm; the first part is the pickle itself."""


def pack(value: object, lender: Lender, places: Places | None = None) -> Parts:
    """Take a value apart; raises whatever its pickling does.

    `places` are the reader's own, for host buffers.
    """
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, buffers, lender).dump(value)
    pickled = pickle.PickleBuffer(file.getbuffer())
    return tuple(_part(buffer, lender, places) for buffer in (pickled, *buffers))


def _part(
    buffer: pickle.PickleBuffer, lender: Lender, places: Places | None
) -> SharedBuffer | pickle.PickleBuffer:
    raw, lent = buffer.raw(), lender.loan.descriptors
    if raw.nbytes < HOST_FROM_BYTES or len(lent) >= MOST_FILES:
        return buffer
    checksum = zlib.crc32(raw) if lender.check else None
    if places and (place := places.put(raw)) is not None:
        return SharedBuffer(True, place, raw.nbytes, checksum)
    try:
        descriptor = shared_memory.put(raw)
    except OSError:
        return buffer
    lent.append(descriptor)
    return SharedBuffer(False, descriptor, raw.nbytes, checksum)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles as Dask does, but hands out the buffers of arrays wherever they are nested."""

    def __init__(
        self, file: io.BytesIO, buffers: list[pickle.PickleBuffer], lender: Lender
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._lender = lender

    def reducer_override(self, obj: Any) -> Any:
        """Return how an array is put together again."""
        if type(obj) is np.ndarray and not (obj.flags.forc or obj.dtype.hasobject):
            return np.ascontiguousarray(obj).__reduce_ex__(5)
        if type(obj) is memoryview:  # cloudpickle would make bytes of it
            return memoryview, (np.asarray(obj, order="C"),)
        reduce = device_arrays.reducer(type(obj))
        if reduce and (reduced := reduce(obj, self._lender)) is not None:
            return reduced
        return super().reducer_override(obj)


def worth_lending(value: object) -> bool:
    """Return whether a value may hold buffers that are faster to lend than to send."""
    return int(sizeof(value)) >= DEVICE_FROM_BYTES


def unpack(parts: Parts, ticket: Ticket, offered: dict[int, MappedFile]) -> object:
    """Rebuild a value; raises OSError if its owner has released it, and whatever unpickling raises.
    Removes the used files from `offered`.
    """
    pickled, *buffers = (_taken(part, ticket, offered) for part in parts)
    with device_arrays.taking(ticket):
        value: object = pickle.loads(pickled, buffers=buffers)
    check_held(ticket)
    return value


def _taken(part: SharedBuffer | Any, ticket: Ticket, offered: dict[int, MappedFile]) -> Any:
    if not isinstance(part, SharedBuffer):
        return part
    if part.offered:
        view = mapped_files.view(offered.pop(part.descriptor), part.size)
    else:
        view = mapped_files.map(ticket.owner, part.descriptor, part.size)
    if part.checksum is not None and part.checksum != zlib.crc32(view):
        raise DamagedError(f"a host buffer of {part.size} bytes differs from what was lent")
    return view
