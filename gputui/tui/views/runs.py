"""The runs view: every run with its progress, and below or beside it the chosen run's result."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical

from gputui.protocol.frontend import CancelRun
from gputui.tui.commands.registry import Command
from gputui.tui.dialogs.form import headless_command
from gputui.tui.filter import Fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.figures import figure_of
from gputui.tui.rendering.results import MARKS, RunRow, run_lines
from gputui.tui.rendering.rows import Field
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Pane
from gputui.tui.widgets.plot import Plot
from gputui.tui.widgets.table import HEADING, Table

BAR_CELLS = 10
WIDE = 150
"""Columns from which the result stands beside the list instead of below it."""
LEAST_ROWS = 4
LOW = 20
"""Lines below which there is no room for a result under the list."""


def _progress(row: RunRow) -> str:
    run = row.run
    if not run.total:
        return fmt.safe(run.stage) or fmt.MISSING
    share = run.done / run.total
    return f"{fmt.bar(share, BAR_CELLS)} {share:>4.0%}"


def _summary(row: RunRow) -> str:
    return fmt.safe(row.run.summary or row.run.stage)


RUN_FIELDS: tuple[Field[RunRow], ...] = (
    Field(
        "STATE",
        11,
        0,
        lambda r: f"{MARKS[r.run.state][0]} {r.run.state.value}",
        lambda r: r.role,
        lambda r: r.run.state.value,
    ),
    Field("PRESET", 12, 0, lambda r: fmt.safe(r.run.preset), sort=lambda r: r.run.preset),
    Field("PROGRESS", BAR_CELLS + 5, 1, _progress),
    Field(
        "TOOK",
        8,
        1,
        lambda r: fmt.elapsed(r.took_s),
        sort=lambda r: r.took_s,
        right=True,
        falling=True,
    ),
    Field(
        "RST",
        3,
        3,
        lambda r: str(r.run.restarts),
        lambda r: "warn" if r.run.restarts else "dim",
        right=True,
    ),
    Field("BEGAN", 8, 4, lambda r: f"{datetime.fromtimestamp(r.run.started_at):%H:%M:%S}"),
    Field("PARAMETERS", 24, 5, lambda r: r.parameters, lambda r: "dim"),
    Field("RESULT", 14, 2, _summary, lambda r: "bad" if r.run.error_type else ""),
)


class RunsView(Listing[RunRow]):
    """All runs that the head knows."""

    NAME = "runs"
    NOTHING = "no runs yet: :run starts one"
    FIELDS = RUN_FIELDS
    FILTER = Fields(
        everything=lambda r: (
            f"{r.run.id} {r.run.preset} {r.run.state} {r.parameters} {_summary(r)}"
        ),
        words={"state": lambda r: r.run.state.value, "preset": lambda r: r.run.preset},
        numbers={"took": lambda r: r.took_s, "restarts": lambda r: r.run.restarts},
    )
    DEFAULT_CSS = f"""
    RunsView {{ layout: vertical; }}
    RunsView #result {{ height: 1fr; border-top: solid $panel; padding: 0 1; }}
    RunsView.wide {{ layout: horizontal; }}
    RunsView.wide #result {{ width: {WIDE // 2 - 5}; height: 1fr; border: none; }}
    RunsView.low #result {{ display: none; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self._text = Pane()
        self._text.can_focus = False
        self._plot = Plot()
        self._height: int | str = ""

    def compose(self) -> ComposeResult:
        """Lay out the list, and beside or below it the result."""
        yield self.table
        with Vertical(id="result"):
            yield self._text
            yield self._plot

    def on_resize(self) -> None:
        """Put the result where there is room for it."""
        super().on_resize()
        wide = self.size.width >= WIDE
        self.set_class(wide, "wide")
        self.set_class(self.size.height < LOW and not wide, "low")

    def values(self, watched: Watched) -> Iterable[RunRow]:
        """Return the runs, the newest first."""
        snapshot = watched.snapshot
        runs = reversed(snapshot.runs) if snapshot else ()
        return (RunRow.at(run, snapshot.taken_at if snapshot else 0.0) for run in runs)

    def key(self, value: RunRow) -> str:
        """Return a run's id."""
        return value.run.id

    def show(self, watched: Watched) -> None:
        """Draw the list and the chosen run."""
        super().show(watched)
        self._leave_room()
        self._show_result()

    def _leave_room(self) -> None:
        """Let the list take no more lines than it has, so that the result gets the rest."""
        below = not (self.has_class("wide") or self.has_class("low"))
        lines = max(LEAST_ROWS, min(self.size.height // 2, HEADING + len(self._values)))
        height = lines if below else "1fr"
        if self._height != height:
            self._height = self.table.styles.height = height

    def on_table_moved(self, event: Table.Moved) -> None:
        """Show the result of the run that the cursor came to."""
        event.stop()
        self._show_result()

    def _show_result(self) -> None:
        row = self.current
        lines = run_lines(row) if row else []
        if self._text.styles.height is None or self._text.styles.height.value != len(lines):
            self._text.styles.height = len(lines)
        self._text.put(lines)
        self._plot.show(figure_of(row.run.result_json) if row else None)

    async def cancel(self) -> None:
        """Cancel the run under the cursor, after asking."""
        row, app = self.current, self.screen_app
        if row is None:
            return
        lines = ("Its tasks are forgotten; the cluster stays.",)
        if await app.person.confirm(f"Cancel {row.run.preset} ({row.run.id})?", lines):
            reply = await app.head.request(CancelRun(0, row.run.id))
            app.say(getattr(reply, "text", ""))

    def cannot_cancel(self) -> str:
        """Return why there is nothing to cancel."""
        row = self.current
        if row is None:
            return "no run is chosen"
        ended = row.run.state.ended
        return f"the run is {row.run.state.value}" if ended else ""

    def copy(self) -> None:
        """Copy the command that runs the same without a screen."""
        row, app = self.current, self.screen_app
        if row is not None and app.watched.snapshot is not None:
            name = app.watched.snapshot.name
            command = headless_command(name, row.run.preset, row.run.parameters)
            app.copy_to_clipboard(command)
            app.say(f"copied: {command}")

    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command(
            "cancel",
            "Cancel the run under the cursor",
            lambda view, _argument: view.cancel(),
            ("x",),
            NAME,
            hint="cancel",
            changes=True,
            unavailable=lambda view: view.cannot_cancel(),
        ),
        Command(
            "copy-run",
            "Copy the command that runs the same without a screen",
            lambda view, _argument: view.copy(),
            ("y",),
            NAME,
            hint="copy",
        ),
        *order_commands(NAME),
    )
