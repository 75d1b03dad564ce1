"""The runs view: every run with its progress, and with it the chosen run's result."""

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import work

from gputui.model.snapshot import RunState, RunStatus
from gputui.presets.definition import figure_of
from gputui.protocol.frontend import CancelRun, StartRun
from gputui.protocol.programs import exec_words, is_program
from gputui.runs.playback import read_recorded_run
from gputui.runs.records import is_script, log_tail
from gputui.tui.commands import Command
from gputui.tui.commands.actions import edit_run, start_run, type_command
from gputui.tui.dialogs import confirm
from gputui.tui.dialogs.run import defaults, headless_command, machine_of
from gputui.tui.filter import Fields
from gputui.tui.rendering import Line, fitted, gauge, wrapped
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.figures import figure_lines
from gputui.tui.rendering.work import (
    LINES,
    MARKS,
    RunRow,
    compare_lines,
    fleet_lines,
    last_took_s,
    progress_lines,
    queue_line,
    run_lines,
    waiting_lines,
)
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched

BAR_CELLS = 12
LOOK_BACK_S = 3.0
"""Interval of reading other clusters' run records."""
LEAST_FIGURE = 9
"""Fewest lines of a figure; the facts of a run then scroll."""


def _progress(row: RunRow, width: int) -> Line:
    run, done = row.run, row.run.state is RunState.DONE
    if done or (run.total and not run.state.ended):
        share = 1.0 if done else run.done / run.total
        return gauge(share, f"{share:.0%}", width)
    text = f"in {run.stage}" if run.stage and run.state.ended else run.stage
    return [(fitted(fmt.safe(text) or fmt.MISSING, width), "dim")]


def _summary(row: RunRow) -> str:
    return fmt.safe((row.run.words or row.run.stage).partition("\n")[0])


class RunsView(Listing[RunRow]):
    """All runs that the head knows."""

    NAME = "runs"
    NOTHING = "no runs yet: :run starts one"
    COLUMNS: ClassVar[Sequence[Column[RunRow]]] = (
        text_column(
            "STATE", 11, 0, lambda r: f"{MARKS[r.run.state][0]} {r.run.state.value}",
            lambda r: r.role, lambda r: r.run.state.value,
        ),
        text_column("PRESET", 12, 0, lambda r: r.name, sort=lambda r: r.name),
        Column("progress", "PROGRESS", BAR_CELLS, 1, _progress, right=False, most=20),
        text_column(
            "TOOK", 8, 1, lambda r: fmt.took(r.took_s), sort=lambda r: r.took_s, right=True
        ),
        text_column(
            "RST", 3, 4, lambda r: str(r.run.restarts),
            lambda r: "warn" if r.run.restarts else "dim", right=True,
        ),
        text_column("BEGAN", 12, 5, lambda r: r.began, lambda r: "dim"),
        text_column("PARAMETERS", 20, 3, lambda r: r.parameters, lambda r: "dim"),
        text_column("RESULT", 14, 2, _summary, lambda r: "bad" if r.run.failure else "", rest=14),
    )  # fmt: skip
    KEY = "run.id"
    FILTER = Fields(
        everything=lambda r: (
            f"{r.run.id} {r.run.preset} {r.run.state} {r.parameters} {_summary(r)}"
        ),
        words={"state": lambda r: r.run.state.value, "preset": lambda r: r.run.preset},
        choices={"state": tuple(RunState)},
        numbers={"took": lambda r: r.took_s, "restarts": lambda r: r.run.restarts},
    )

    def __init__(self) -> None:
        super().__init__()
        self._earlier: tuple[RunStatus, ...] = ()
        self._logs: dict[tuple[str, RunState], tuple[str, ...]] = {}
        """The last lines of ended runs, empty until they were read."""

    def values(self, watched: Watched) -> Iterable[RunRow]:
        """Return the runs, the newest first; those of other clusters after this one's."""
        snapshot, now = watched.snapshot, self.screen_app.head.clock()
        known = {run.id for run in snapshot.runs}
        rows = [RunRow.at(run, snapshot.taken_at) for run in reversed(snapshot.runs)]
        return rows + [RunRow.at(run, now) for run in self._earlier if run.id not in known]

    def on_mount(self) -> None:
        """Look for the runs of other clusters, now and from time to time while this is in sight."""
        self._look_back()
        self.set_interval(LOOK_BACK_S, lambda: self._look_back() if self.display else None)

    @work(group="earlier runs", exclusive=True)
    async def _look_back(self) -> None:
        """Read the records of runs that this cluster's head does not know."""
        for key in [each for each in self._logs if not each[1].ended]:
            self._read(key)
        found = await asyncio.to_thread(self.screen_app.earlier_runs)
        if found != self._earlier or any(not run.state.ended for run in found):
            self._earlier = found
            self.screen_app.redraw()

    def go_to(self, key: str) -> None:
        """Put the cursor on a run, which may not have been heard of yet; no filter hides it."""
        if self.filter_text and key not in self._values:
            self.filter("")
        super().go_to(key)

    def about(self, value: RunRow, width: int, height: int) -> list[Line]:
        """Return the run's page: progress, result and figure, or why it failed and what to do.

        While two runs are marked, return both.
        """
        marked = [row for row in self._values.values() if row.run.id in self.marked]
        if len(marked) == 2:
            first, second = sorted(marked, key=lambda row: row.run.started_at)
            return compare_lines(first, second, width)
        run, watched = value.run, self.screen_app.watched
        is_here, snapshot = self._is_here(run), watched.snapshot
        then_s = last_took_s(run, (row.run for row in self._values.values()))
        lines = run_lines(value, width, self._log(run), self._defaults(run), then_s)
        if is_program(run.preset) and run.failure is None and (said := self._log(run)):
            lines += [(), *(line for text in said for line in wrapped(text, width))]
        gpus = fleet_lines(watched, value, width) if is_here else []
        goes_on = is_here and not (run.state.ended or is_program(run.preset))
        if goes_on:
            lines += [queue_line(run, snapshot), *waiting_lines(snapshot, width)]
        room = max(LEAST_FIGURE, height - len(lines) - 1 - (LINES + 1 if gpus else 0))
        if goes_on:
            lines += [(), *progress_lines(snapshot.groups, watched.throughput, width, room)]
        elif (figure := figure_of(run.result_json)) is not None:
            lines += [(), *figure_lines(figure, width, room, self._text.palette.flat)]
        return [*lines, (), *gpus] if gpus else lines

    def _defaults(self, run: RunStatus) -> str:
        """Return the parameters that a run was not given, as its preset has them."""
        machine = machine_of(self.screen_app.watched.snapshot)
        backend = machine.backend if machine else "cupy"
        return " ".join(f"{n}={t}" for n, t in defaults(run.preset, run.parameters, backend))

    def _is_here(self, run: RunStatus) -> bool:
        """Return whether a run is this cluster's: only then its tasks and GPUs are the run's."""
        return any(run.id == each.id for each in self.screen_app.watched.snapshot.runs)

    def _log(self, run: RunStatus) -> tuple[str, ...]:
        """Return the last log lines of an ended run or of a program, once they were read."""
        key = (run.id, run.state)
        if (run.state.ended or is_program(run.preset)) and key not in self._logs:
            self._logs[key] = ()
            self._read(key)
        return self._logs.get(key, ())

    @work(group="log")
    async def _read(self, key: tuple[str, RunState]) -> None:
        self._logs[key] = await asyncio.to_thread(log_tail, key[0])
        self.call_after_refresh(self.screen_app.redraw)

    def open(self, value: RunRow) -> None:
        """Go to the worker whose end, or whose lines, say most of the run; else to the logs."""
        run, app = value.run, self.screen_app
        workers = app.watched.workers
        if not self._is_here(run):
            app.say("it ran on another cluster: its workers and their logs are not here")
            return
        telling = [each.name for each in workers if run.failure and each.name == run.failure.worker]
        telling += [each.name for each in workers if each.executing and not run.state.ended]
        app.go_to(*(("device", telling[0]) if telling else ("logs",)))

    @property
    def _run(self) -> RunStatus:
        assert self.current is not None, "its command is unavailable"
        return self.current.run

    async def repeat(self) -> None:
        """Run the run under the cursor again, as it was."""
        run = self._run
        again = StartRun(0, run.preset, run.parameters, run.backend, run.cwd)
        await start_run(self.screen_app, again)

    async def edit(self) -> None:
        """Open the form of the run under the cursor, or a program's command, as it was."""
        app, run = self.screen_app, self._run
        if is_program(run.preset):
            typed = dict(run.parameters)
            if run.cwd not in ("", str(Path.cwd())) and not typed.keys() & {"cwd", "send"}:
                typed = {"cwd": run.cwd} | typed
            await type_command(app, shlex.join(["exec", *exec_words(typed.items())[1:]]))
        else:
            await edit_run(app, run.preset, dict(run.parameters), run.backend)

    def cannot_run(self) -> str:
        """Return why the run under the cursor cannot be run again."""
        if self.current is None:
            return "no run is selected"
        if is_script(self.current.run.preset):
            return "a script runs in a terminal of its own: y copies its command"
        any_up = self.screen_app.watched.snapshot.any_up
        return "" if is_program(self.current.run.preset) or any_up else "no worker is up yet"

    async def cancel(self) -> None:
        """Cancel the run under the cursor, after asking."""
        run, app = self._run, self.screen_app
        what = "processes are ended" if is_program(run.preset) else "tasks are dropped"
        lines = (f"Its {what}; the cluster stays.",)
        if await confirm(app, f"Cancel {run.preset} ({run.id})?", lines):
            reply = await app.head.request(CancelRun(0, run.id))
            app.say(getattr(reply, "text", ""))

    def cannot_cancel(self) -> str:
        """Return why there is nothing to cancel."""
        if self.current is None:
            return "no run is selected"
        return f"the run is {self._run.state.value}" if self._run.state.ended else ""

    async def play_back(self) -> None:
        """Show the views as they were during the run under the cursor."""
        await self.screen_app.play_back(await asyncio.to_thread(read_recorded_run, self._run.id))

    def cannot_play(self) -> str:
        """Return why nothing can be played back."""
        if self.screen_app.playback:
            return "a recording is shown already"
        return "" if self.current else "no run is selected"

    def copied(self) -> str:
        """Return the command that runs the same without a screen."""
        if self.current is None:
            return ""
        run, cluster = self._run, self.screen_app.watched.snapshot.name
        return headless_command(cluster, run.preset, run.parameters, run.backend)

    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command(
            "repeat", "Repeat the selected run", repeat, "r", hint="repeat",
            changes=True, unavailable=cannot_run,
        ),
        Command(
            "edit", "Edit the selected run, and start it", edit, "e", hint="edit",
            changes=True, unavailable=cannot_run,
        ),
        Command(
            "cancel", "Cancel the selected run", cancel, "x", hint="cancel",
            changes=True, unavailable=cannot_cancel,
        ),
        Command(
            "playback", "Play back the recording of the selected run", play_back, "P",
            hint="play back", unavailable=cannot_play,
        ),
        Command(
            "mark-run", "Mark or unmark a run; two are compared", Listing.mark, "space",
            hint="compare",
        ),
        *order_commands(NAME),
    )  # fmt: skip
