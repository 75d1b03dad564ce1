"""CuPy arrays between the processes of a cluster, where neither Numba nor RMM is installed.

Dask's own way (distributed 2026.8, `distributed.protocol.cupy`) needs one of them at the
receiving end. The header here is the one that it writes and reads, so that either end may be
without gputui.
"""

from typing import Any


def register() -> None:
    """Have Dask send and receive CuPy arrays so, from the first one in this process on."""
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    dask_serialize.register_lazy("cupy", _register)
    dask_deserialize.register_lazy("cupy", _register)


def _register() -> None:
    import cupy
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    dask_serialize.register(cupy.ndarray, _serialize)
    dask_deserialize.register(cupy.ndarray, _deserialize)


def _serialize(array: Any) -> tuple[dict[str, Any], list[memoryview]]:
    import cupy
    import numpy as np

    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = cupy.ascontiguousarray(array)
    header = array.__cuda_array_interface__.copy()
    header["strides"] = tuple(array.strides)
    flat = cupy.ndarray((array.nbytes,), np.uint8, array.data)
    return header, [memoryview(cupy.asnumpy(flat))]


def _deserialize(header: dict[str, Any], frames: list[Any]) -> Any:
    import cupy
    import numpy as np

    flat = cupy.asarray(np.asarray(memoryview(frames[0]).cast("B")))
    return cupy.ndarray(header["shape"], header["typestr"], flat.data, strides=header["strides"])
