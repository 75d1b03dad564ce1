"""CuPy arrays between the processes of a cluster, where neither Numba nor RMM is installed.

Dask's own way (distributed 2026.8, `distributed.protocol.cupy`) needs one of them at the
receiving end. The header here is the one that it writes and reads, so that either end may be
without gputui.
"""

from typing import Any

STAGED_FROM_BYTES = 2**22
"""From which pinned buffers pay."""


_staging: Any = None
"""The pinned buffers of a worker, which copy large arrays faster than CuPy does."""


def register(staging: Any = None) -> None:
    """Have Dask send and receive CuPy arrays so, from the first one in this process on."""
    global _staging
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    _staging = staging
    dask_serialize.register_lazy("cupy", _register)
    dask_deserialize.register_lazy("cupy", _register)


def _register() -> None:
    import cupy
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    dask_serialize.register(cupy.ndarray, _serialize)
    dask_deserialize.register(cupy.ndarray, _deserialize)


def _serialize(array: Any) -> tuple[dict[str, Any], list[memoryview]]:
    import cupy

    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = cupy.ascontiguousarray(array)
    header = array.__cuda_array_interface__.copy()
    header["strides"] = tuple(array.strides)
    return header, [memoryview(on_host(array))]


def _deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    import cupy

    flat = on_device(memoryview(frames[0]).cast("B"))
    return cupy.ndarray(header["shape"], header["typestr"], flat.data, strides=header["strides"])


def on_host(array: Any) -> Any:
    """Return the bytes of a contiguous array of CuPy's in host memory."""
    import cupy
    import numpy as np

    if _staging and array.nbytes >= STAGED_FROM_BYTES:
        return _staging.to_host(array.data.ptr, array.nbytes)
    return cupy.asnumpy(cupy.ndarray((array.nbytes,), np.uint8, array.data))


def on_device(data: memoryview) -> Any:
    """Return bytes of host memory as an array of CuPy's."""
    import cupy
    import numpy as np

    if not _staging or data.nbytes < STAGED_FROM_BYTES:
        return cupy.asarray(np.asarray(data))
    flat = cupy.empty(data.nbytes, np.uint8)
    _staging.to_device(data, flat.data.ptr)
    return flat
