"""The files of a result: checked before anything starts, written when the result is there."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui import runs
from gputui.errors import GputuiError, RunError, UsageError
from gputui.presets import BUILT_IN, Figure, Preset
from gputui.presets.outcome import json_text
from gputui.protocol.frontend import Settled
from gputui.runs.request import RunRequest
from gputui.version import __version__

if TYPE_CHECKING:
    from gputui.runs.execution import RunResult

TERMINAL = "-"
"""`--figure -`: draw it in the terminal."""


@dataclass(frozen=True, slots=True)
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
    """Return where to write; raises UsageError where that cannot be, or a library is missing.

    `draw` returns a figure as text for a terminal.
    """
    in_terminal = figure == TERMINAL
    folder = _folder(save) if save else None
    report_file = _file("--report", report) if report else None
    figure_file = _figure(figure) if figure and not in_terminal else None
    if report_file:
        _need("bokeh", "--report", "report")
    if figure_file:
        _need("matplotlib", "--figure", "figure")
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


def write(output: Output, result: "RunResult", fetch: Callable[[Any], Any]) -> Iterator[Path]:
    """Write the files, the arrays first, and yield each; raises GputuiError.

    `fetch` computes where the blocks are.
    """
    if output.save:
        yield from runs.save_arrays(output.save, result.arrays, fetch)
    if output.figure and result.figure:
        runs.draw_file(result.figure, output.figure)
        yield output.figure
    if output.report and result.report_error:
        raise RunError(f"--report {output.report}: {result.report_error}")
    if output.report:
        yield output.report
    if output.wants_figure and not result.figure:
        raise RunError("this run has no figure to draw")


def print_out(text: str) -> None:
    """Print on stdout; raises RunError where that is full, and not where nobody reads on."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return
    except OSError as error:
        raise RunError(f"standard output: {error.strerror}") from error


def print_failure(request: RunRequest, error: GputuiError) -> None:
    """Print what `--json` prints of a failure, where that can be written: it says itself, too."""
    with contextlib.suppress(RunError):
        print_out(json_text(failure(request, error)))


def failure(request: RunRequest, error: GputuiError) -> dict[str, Any]:
    """Return the object that `--json` prints of a failure."""
    message = "\n".join((str(error), *getattr(error, "__notes__", ())))
    return {
        "preset": request.name,
        "parameters": dict(request.parameters),
        "backend": request.backend,
        "error": {"type": type(error).__name__, "message": message},
        "version": __version__,
    }


def failed_hosts(settled: Settled) -> tuple[dict[str, str], ...]:
    """Describe the failed hosts for `--json`."""
    return tuple(
        {"host": host.name, "stage": host.failed_stage, "reason": host.reason}
        for host in settled.failed_hosts
    )


def _need(module: str, option: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{option} needs {module}: pip install 'gputui[{extra}]'")


def _folder(given: str) -> Path:
    """Return the folder for arrays, which can be made; nothing in it is ever overwritten."""
    path = Path(given).expanduser()
    new = [each for each in (path, *path.parents) if not os.path.lexists(each)]
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK)
    except FileExistsError:
        raise UsageError(f"--save {given}: is no directory") from None
    except OSError as error:
        raise UsageError(f"--save {given}: {error.strerror}") from error
    finally:
        for each in new:
            with contextlib.suppress(OSError):
                each.rmdir()
    if there := sorted(each.name for each in path.glob("*.npy")):
        raise UsageError(f"--save {given}: has {', '.join(there)} already; name another folder")
    if not writable:
        raise UsageError(f"--save {given}: {path} cannot be written to")
    return path


def _figure(given: str) -> Path:
    path = _file("--figure", given)
    if path.suffix not in runs.FIGURE_SUFFIXES:
        raise UsageError(
            f"--figure {given}: name a file that ends in {', '.join(runs.FIGURE_SUFFIXES)}, "
            "or - for this terminal"
        )
    return path


def _file(option: str, given: str) -> Path:
    path = Path(given).expanduser()
    if path.is_dir():
        raise UsageError(f"{option} {given}: is a directory; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {given}: no such folder: {path.parent}")
    return _writable(option, given, path, path if path.exists() else path.parent)


def _writable(option: str, given: str, path: Path, checked: Path) -> Path:
    if not os.access(checked, os.W_OK):
        raise UsageError(f"{option} {given}: {checked} cannot be written to")
    return path
