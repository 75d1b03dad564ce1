"""`--save DIR`: a run's arrays as `.npy` files, fetched block by block."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from gputui.errors import RunError
from gputui.presets.job import to_host
from gputui.runs.files import open_new


def save_arrays(
    folder: Path, arrays: Mapping[str, Any], fetch: Callable[[Any], Any]
) -> tuple[Path, ...]:
    """Write each array as `NAME.npy` and return the files.

    Dask arrays are fetched one block at a time, so that none has to fit in this machine's memory:
    `fetch` computes a block where it is. A file that could not be finished is removed, and so
    is a new folder without any.

    Raises:
        RunError: nothing to save, no room on the disk, or a file that cannot be written.
    """
    if not arrays:
        raise RunError("this run has no arrays to save")
    for name, array in arrays.items():
        if not hasattr(array, "nbytes") or Path(name).name != name:
            raise RunError(
                f"{name!r}, a {type(array).__name__}, is no array, or no name for a file"
            )
        if any(length != length for length in array.shape):
            raise RunError(
                f"the shape of {name!r} is not known before it is computed",
                hint="call .compute_chunk_sizes() on the array in compute",
            )
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(folder, sum(int(array.nbytes) for array in arrays.values()))
        return tuple(_save(folder / f"{name}.npy", array, fetch) for name, array in arrays.items())
    except OSError as error:
        raise RunError(f"--save {folder}: {error.strerror or error}") from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it holds arrays
                folder.rmdir()


def _check_room(folder: Path, needed: int) -> None:
    """Raise RunError where a disk has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"--save {folder}: {needed:,} bytes do not fit in the {free:,} that are free",
            hint="choose another folder, or fewer rows",
        )


def _save(path: Path, array: Any, fetch: Callable[[Any], Any]) -> Path:
    import numpy as np

    try:
        file = open_new(path)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from error
    try:
        with file:
            opened = f"/proc/self/fd/{file.fileno()}"  # this very file, whatever is at its path
            out = np.lib.format.open_memmap(opened, "w+", dtype=array.dtype, shape=array.shape)
            _reserve(file.fileno())
        for place, block in _blocks(array, fetch):
            out[place] = block
        out.flush()
    except OSError as error:
        path.unlink(missing_ok=True)
        raise RunError(f"{path}: {error.strerror or error}") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _reserve(descriptor: int) -> None:
    """Reserve a file's space on disk; raises OSError.

    A write into a mapped file on a disk that has filled up ends the process (SIGBUS).
    """
    os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)


def _blocks(array: Any, fetch: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (slices, NumPy block) of an array; a NumPy array is one block."""
    if not hasattr(array, "dask"):
        yield ..., array
        return
    edges = [_edges(lengths) for lengths in array.chunks]
    for index in product(*(range(len(each)) for each in edges)):
        place = tuple(each[i] for each, i in zip(edges, index, strict=True))
        yield place, fetch(array.blocks[index].map_blocks(to_host, dtype=array.dtype))


def _edges(lengths: tuple[int, ...]) -> list[slice]:
    stops = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [slice(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]
