"""The screen in this terminal, from its first frame to the exit code; the command line calls it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gputui.errors import ExitCode
from gputui.model.snapshot import RunStatus
from gputui.tui.app import ScreenApp
from gputui.tui.attachment import OpenConnection
from gputui.tui.preferences import Remembered, location
from gputui.tui.rendering.format import safe
from gputui.tui.rendering.palette import WITHOUT_COLOUR, ascii_alone

if TYPE_CHECKING:
    from gputui.tui.commands.person import AskingLogin
    from gputui.tui.first_minute import First


class RecordedRuns:
    """All recorded runs, the newest first; read again only where that can say something new.

    Reading takes a disk's time: it is for a thread.
    """

    def __init__(self) -> None:
        self._written_at: tuple[int, ...] = ()
        self._runs: tuple[RunStatus, ...] = ()

    def __call__(self) -> tuple[RunStatus, ...]:
        """Return them as they are now; a run whose process is gone is lost."""
        from gputui.runs.records import recorded, runs_dir, status_of  # not for the first frame

        written_at: tuple[int, ...] = ()
        with contextlib.suppress(OSError), os.scandir(runs_dir()) as folders:
            written_at = tuple(sorted(folder.stat().st_mtime_ns for folder in folders))
        if written_at != self._written_at or any(not run.state.ended for run in self._runs):
            self._runs = tuple(map(status_of, recorded()))
            self._written_at = written_at
        return self._runs


def run_screen(
    open_connection: OpenConnection,
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run,
    *,
    readonly: bool = False,
    theme: str | None = None,
    ascii: bool = False,
    start_again: Callable[[], None] | None = None,
    simulated: bool = False,
    first: "First | None" = None,
    login: "AskingLogin | None" = None,
) -> int:
    """Show the screen until it is left, and return the exit code.

    `open_connection` is called once the first frame stands, and again when the head was lost. What
    it raises is raised here once the screen is gone, except HeadError: that is tried again.
    `run` runs the screen in an event loop: that of `login`, where there is one.
    `start_again` has the next call start the cluster, where that can be done. `login` is the
    machine of a head elsewhere, which may ask for a password when it is reached again.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("gputui: the screen needs a terminal; without one, use --run", file=sys.stderr)
        return ExitCode.WRONG_USAGE
    if os.environ.get("TERM") == "dumb":
        print("gputui: TERM is dumb: the screen cannot be drawn; use --run", file=sys.stderr)
        return ExitCode.WRONG_USAGE
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
        hints=True,
        earlier_runs=tuple if simulated else RecordedRuns(),
    )
    code = run(app.run_async(mouse=not os.environ.get("SSH_CONNECTION")))
    if app.closing_text:
        print(f"gputui: {safe(app.closing_text)}", file=sys.stderr)
    if app.failure is not None:
        raise app.failure
    return int(code or app.return_code or 0)
