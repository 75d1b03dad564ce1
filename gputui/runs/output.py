"""The files of a result: checked before anything starts, written when the result is there.

No link is followed where a file is written: one that is there is replaced, an array's refused.
"""

import contextlib
import importlib.util
import io
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gputui.errors import RunError, UsageError, refuse
from gputui.model.frozen import frozen
from gputui.presets import BUILT_IN, Figure, Preset, to_host
from gputui.presets.definition import NO_NUMBER

FIGURE_SUFFIXES = (".png", ".pdf", ".svg")

FEW_POINTS = 30
"""Each of so many is marked."""

TERMINAL = "-"
"""`--figure -`: draw it in the terminal."""


@frozen
class Output:
    """The files that were asked for."""

    save: Path | None = None
    report: Path | None = None
    figure: Path | None = None
    draw: Callable[[Figure], str] | None = None
    """Draws the figure below the result, where that is wanted."""
    wants_figure: bool = False
    """Whether one was asked for, wherever it goes."""


def checked(
    save: str | None, report: str | None, figure: str | None, draw: Callable[[Figure], str]
) -> Output:
    """Return where to write; raises UsageError if that is impossible or a library is missing.

    `draw` returns a figure as text for a terminal.
    """
    in_terminal = figure == TERMINAL
    folder = _folder(save) if save else None
    report_file = output_file("--report", report) if report else None
    figure_file = output_file("--figure", figure) if figure and not in_terminal else None
    if figure_file and figure_file.suffix not in FIGURE_SUFFIXES:
        raise UsageError(
            f"--figure {figure}: name a file that ends in {', '.join(FIGURE_SUFFIXES)}, "
            "or - for this terminal"
        )
    needed = ("--report", report_file, "bokeh"), ("--figure", figure_file, "matplotlib")
    for option, file, module in needed:
        if file and importlib.util.find_spec(module) is None:
            raise UsageError(f"{option} needs {module}: pip install 'gputui[{option[2:]}]'")
    return Output(
        save=folder,
        report=report_file,
        figure=figure_file,
        draw=draw if in_terminal or sys.stdout.isatty() else None,
        wants_figure=bool(figure),
    )


def refuse_undeclared(preset: Preset, name: str, save: str | None, figure: str | None) -> None:
    """Raise UsageError if the preset, called `name`, does not declare the requested output."""
    if save and not preset.arrays:
        option, lacks, declared = f"--save {save}", "keeps no arrays", 'arrays=("x",)'
    elif figure and not preset.draws:
        option, lacks, declared = f"--figure {figure}", "draws no figure", "draws=True"
    else:
        return
    yours = "" if name in BUILT_IN else f"\n  if it does, declare it: Preset(…, {declared})"
    raise UsageError(f"{option}: {name} {lacks}; it gives {preset.offers}{yours}")


def _folder(given: str) -> Path:
    """Return the folder for arrays, which can be made; nothing in it is ever overwritten."""
    path = Path(given).expanduser()
    there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    refuse(
        (not there.is_dir(), f"--save {given}: {there} is no directory"),
        (not os.access(there, os.W_OK | os.X_OK), f"--save {given}: {there} cannot be written to"),
    )
    if found := sorted(each.name for each in path.glob("*.npy")):
        raise UsageError(f"--save {given}: has {', '.join(found)} already; name another folder")
    return path


def output_file(option: str, given: str) -> Path:
    """Return the file that an option names; raises UsageError where it cannot be written."""
    path = Path(given).expanduser()
    refuse(
        (
            path.exists() and not path.is_file(),
            f"{option} {given}: is a directory or a device; name a file",
        ),
        (not path.parent.is_dir(), f"{option} {given}: no such folder: {path.parent}"),
        (
            not os.access(path.parent, os.W_OK),
            f"{option} {given}: {path.parent} cannot be written to",
        ),
    )
    return path


def save_arrays(
    folder: Path, arrays: Mapping[str, Any], fetch: Callable[[Any], Any]
) -> tuple[Path, ...]:
    """Write each array as `NAME.npy` and return the files.

    Dask arrays are fetched one block at a time, so that none has to fit in this machine's memory:
    `fetch` computes a block where it is. A file that could not be finished is removed, and so
    is a new folder without any.

    Raises:
        RunError: an array of unknown shape, or a file that cannot be written.
    """
    for name, array in arrays.items():
        if any(length != length for length in array.shape):
            raise RunError(
                f"the shape of {name!r} is not known before it is computed",
                hint="call .compute_chunk_sizes() on the array in compute",
            )
    is_new = not folder.exists()
    place = f"--save {folder}"
    paths: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            path = folder / f"{name}.npy"
            place = str(path)
            _save(path, array, fetch)
            paths.append(path)
    except OSError as error:
        raise RunError(f"{place}: {error.strerror or error}") from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it holds arrays
                folder.rmdir()
    return tuple(paths)


def _save(path: Path, array: Any, fetch: Callable[[Any], Any]) -> None:
    """Write an array to a new file, which is whole or not there; raises OSError."""
    import numpy as np

    file = path.open("x+b")
    try:
        with file:
            opened = f"/dev/fd/{file.fileno()}"  # this very file, whatever is at its path
            out = np.lib.format.open_memmap(opened, "w+", dtype=array.dtype, shape=array.shape)
            # A write into a mapped file on a disk that has filled up ends the process (SIGBUS).
            if hasattr(os, "posix_fallocate"):  # a Mac has none
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        for place, block in _blocks(array, fetch):
            out[place] = block
        out.flush()
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _blocks(array: Any, fetch: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (slices, NumPy block) of an array; a NumPy array is one block."""
    if not hasattr(array, "dask"):
        yield ..., array
        return
    import numpy as np
    from dask.array.core import slices_from_chunks

    places = slices_from_chunks(array.chunks)
    for index, place in zip(np.ndindex(array.numblocks), places, strict=True):
        yield place, fetch(array.blocks[index].map_blocks(to_host, dtype=array.dtype))


def draw_file(figure: Figure, path: Path) -> None:
    """Write the figure to a file, in the format that one of `FIGURE_SUFFIXES` names.

    Raises:
        RunError: the file cannot be written.
    """
    write_over("--figure", path, drawn(figure, path.suffix[1:]))


def write_over(option: str, path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write the file of an option in place of the one that is there; leaves no part of it.

    Raises:
        RunError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise RunError(f"{option} {path}: {error.strerror or error}") from error


def drawn(figure: Figure, format: str) -> bytes:
    """Return the figure as png, pdf or svg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    if drawable := figure.finite():
        axes.set_title(drawable.title)
        _fill(axes, drawable)
    else:
        axes.set_title(f"{figure.title}: {NO_NUMBER}")
    data = io.BytesIO()
    canvas.savefig(data, dpi=150, format=format)
    return data.getvalue()


def _fill(axes: Any, figure: Figure) -> None:
    if figure.kind == "heat":
        _fill_map(axes, figure)
    elif figure.kind == "bar":
        axes.barh(figure.labels, figure.y)
        axes.invert_yaxis()
        axes.set(xlabel=figure.y_label, ylabel="")
    else:
        axes.plot(figure.x, figure.y, marker="o" if len(figure.x) <= FEW_POINTS else None)
        if all(value == int(value) for value in figure.x):
            axes.xaxis.get_major_locator().set_params(integer=True)
        if figure.logarithmic:
            axes.set_yscale("log")


def _fill_map(axes: Any, figure: Figure) -> None:
    """Draw a matrix with its scale."""
    matrix = [[float("nan") if v is None else v for v in row] for row in figure.matrix]
    image = axes.imshow(matrix, cmap="viridis")
    axes.figure.colorbar(image, ax=axes, label=figure.y_label)
    axes.set(xlabel="", ylabel=figure.x_label)
    axes.set_xticks(range(len(figure.labels)), figure.labels, rotation=45, ha="right")
    axes.set_yticks(range(len(figure.labels)), figure.labels)
