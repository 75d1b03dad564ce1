"""The screen in this terminal, from its first frame to the exit code; the command line calls it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any

from gputui.errors import ExitCode
from gputui.model.snapshot import RunStatus
from gputui.tui.app import AskOnScreen, ScreenApp
from gputui.tui.attachment import OpenConnection, StartOptions
from gputui.tui.preferences import Remembered, location
from gputui.tui.rendering.format import safe
from gputui.tui.rendering.palette import WITHOUT_COLOUR, ascii_alone


def recorded_runs() -> tuple[RunStatus, ...]:
    """Return all recorded runs, the newest first; a run whose process is gone is lost.

    Reading takes a disk's time: it is for a thread.
    """
    from gputui.folders import runs_dir

    written_at: list[int] = []
    with contextlib.suppress(OSError):
        written_at = sorted(folder.stat().st_mtime_ns for folder in runs_dir().iterdir())
    found = _read_runs(tuple(written_at))
    if not all(run.state.ended for run in found):
        _read_runs.cache_clear()
    return found


@lru_cache(maxsize=1)
def _read_runs(_written_at: tuple[int, ...]) -> tuple[RunStatus, ...]:
    from gputui.runs.records import recorded, status_of

    return tuple(map(status_of, recorded()))


def run_screen(
    open_connection: OpenConnection,
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run,
    *,
    readonly: bool = False,
    theme: str | None = None,
    ascii: bool = False,
    start_again: Callable[[], None] | None = None,
    simulated: bool = False,
    first: StartOptions | None = None,
    login: str = "",
    ask_on_screen: AskOnScreen | None = None,
) -> int:
    """Show the screen until it is left, and return the exit code.

    `open_connection` is called once the first frame stands, and again when the head was lost. What
    it raises is raised here once the screen is gone, except HeadError: that is tried again.
    `run` runs the screen in an event loop: that of the head's machine, where it is elsewhere.
    `start_again` has the next call start the cluster, where that can be done. `login` is the
    machine of a head elsewhere; `ask_on_screen` takes the function that answers what it asks when
    it is reached again.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("gputui: the screen needs a terminal; without one, use --run", file=sys.stderr)
        return ExitCode.WRONG_USAGE
    if os.environ.get("TERM") == "dumb":
        print("gputui: TERM is dumb: the screen cannot be drawn; use --run", file=sys.stderr)
        return ExitCode.WRONG_USAGE
    for name in ("COLUMNS", "LINES"):  # a shell may export them; Textual 8.2 believes them
        os.environ.pop(name, None)
    if os.environ.get("TERM") == "linux":
        theme = theme or WITHOUT_COLOUR
    remembered = Remembered(location(simulated=simulated))
    app = ScreenApp(
        open_connection,
        readonly=readonly,
        theme=theme,
        ascii_only=ascii or ascii_alone(os.environ),
        remembered=remembered,
        start_again=start_again,
        first=first,
        login=login,
        ask_on_screen=ask_on_screen,
        hints=True,
        earlier_runs=tuple if simulated else recorded_runs,
    )
    code = run(app.run_async(mouse=not os.environ.get("SSH_CONNECTION")))
    if app.closing_text:
        print(f"gputui: {safe(app.closing_text)}", file=sys.stderr)
    if app.failure is not None:
        raise app.failure
    return int(code or app.return_code or 0)
