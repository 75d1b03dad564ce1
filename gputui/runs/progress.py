"""Show a run's progress on stderr: a bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Mapping

from gputui.model.plain_text import safe
from gputui.model.snapshot import Snapshot, TaskGroupStatus
from gputui.presets import RunProgress
from gputui.protocol.programs import is_program

LINE_EVERY_S = 5.0
"""How often a running stage is reported without a terminal."""


class Progress:
    """A line when a stage begins, every few seconds while it counts, and when it ends.

    With `quiet` it shows nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._stage = ""
        self._line = ""
        self._told_at = 0.0

    def show(self, step: RunProgress) -> None:
        """Print a line where there is something new to say."""
        now, ended = time.monotonic(), step.total and step.done == step.total
        line = f"{step.stage} {step.done:,}/{step.total:,}" if step.total else step.stage
        news = step.stage != self._stage or (ended and line != self._line)
        if self._quiet or not (news or (step.total and now - self._told_at >= LINE_EVERY_S)):
            return
        self._stage, self._line, self._told_at = step.stage, line, now
        print(safe(line), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Show nothing from now on."""
        self._quiet = True


class Bar(Progress):
    """A bar for the stage that is under way, until there is another one."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        super().__init__()
        self._bar = RichProgress(
            TextColumn("{task.description:<20}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]:<11}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            redirect_stdout=False,
        )
        self._task = self._bar.add_task("", total=None, count="")
        self._bar.start()

    def close(self) -> None:
        """Leave the bar as it is, from now on; its terminal may be gone."""
        with contextlib.suppress(OSError):
            self._bar.stop()

    def show(self, step: RunProgress) -> None:
        """Move the bar, from the beginning for another stage."""
        if step.stage != self._stage:
            self._stage = step.stage
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(safe(step.stage), total=None, count="")
        count = f"{step.done:,}/{step.total:,}" if step.total else ""
        self._bar.update(self._task, completed=step.done, total=step.total or None, count=count)


class TaskCounts:
    """Counts a stage by the scheduler's tasks, where its futures do not.

    A script's computation is unknown, and a Dask collection is one future for its client.
    Snapshots count all tasks on the cluster; those of the stage are in groups that are new. While
    several runs compute, nobody knows whose those are.
    """

    def __init__(self) -> None:
        self._before: frozenset[str] | None = None
        """Names of the groups before the run; None until the first snapshot."""
        self._there: Mapping[str, TaskGroupStatus] = {}
        self._totals: dict[str, int] = {}
        """Of each new group, also of one that the scheduler has forgotten since."""
        self._shared = False
        """Whether another run computed during this stage."""

    def begin(self) -> None:
        """Count from here on."""
        if self._before is not None:
            self._before = frozenset(self._there)
        self._totals, self._shared = {}, False

    def looked(self, snapshot: Snapshot) -> None:
        """Take the counts of a snapshot."""
        self._there = {group.name: group for group in snapshot.groups}
        going_on = [run for run in snapshot.runs if not run.state.ended]
        self._shared |= sum(not is_program(run.preset) for run in going_on) > 1
        if self._before is None:
            self._before = frozenset(self._there)
        for name in self._there.keys() - self._before:
            self._totals[name] = self._there[name].total

    def shown(self, step: RunProgress) -> RunProgress:
        """Return a stage with its futures counted or, of a single one, the tasks behind it."""
        total = sum(self._totals.values())
        if step.total > 1 or total <= 1 or self._shared:
            return step
        there = [self._there[name] for name in self._totals if name in self._there]
        left = sum(group.total - group.finished for group in there)
        return RunProgress(step.stage, total if step.done else total - left, total)
