"""What there is to say of a run, in lines: parameters, times, each number of its result. Pure."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from textwrap import wrap
from typing import Any

from gputui.snapshot import RunState, RunStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.run_story import Story
from gputui.tui.widgets.pane import Line

MARKS = {
    RunState.STARTING: ("◔", "accent"),
    RunState.RUNNING: ("●", "busy"),
    RunState.DONE: ("✔", "good"),
    RunState.FAILED: ("✖", "bad"),
    RunState.CANCELLED: ("■", "dim"),
    RunState.LOST: ("✖", "bad"),
}
"""How a run's state is shown: by shape and role."""
KEY_CELLS = 20


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it is at one moment."""

    run: RunStatus
    took_s: float

    @classmethod
    def at(cls, run: RunStatus, now: float) -> "RunRow":
        """Return the run with the time that it has taken until `now`."""
        return cls(run, (now if run.ended_at is None else run.ended_at) - run.started_at)

    @property
    def role(self) -> str:
        """The role that its state is written in."""
        return MARKS[self.run.state][1]

    @property
    def parameters(self) -> str:
        """Its parameters in a line."""
        return fmt.safe(" ".join(f"{name}={value}" for name, value in self.run.parameters))


def began(run: RunStatus) -> str:
    """Return when a run began: the time, or the day where that was not today."""
    at = datetime.fromtimestamp(run.started_at)
    today = datetime.fromtimestamp(time.time()).date()
    return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%d %b}"


def run_lines(row: RunRow, width: int = 80, story: Story | None = None) -> list[Line]:
    """Return what there is to say of a run, in lines that are no wider."""
    run, story = row.run, story or Story()
    stages = ", ".join(f"{stage} {elapsed_s:.1f} s" for stage, elapsed_s in story.timings)
    lines: list[Line] = [
        [(fmt.safe(run.preset), "title"), (f"  {row.parameters}", "")],
        [
            (f"{MARKS[run.state][0]} {run.state.value}", row.role),
            (f"  began {began(run)}, took {fmt.elapsed(row.took_s)}", ""),
            (f": {stages}" if stages else "", "dim"),
            (f"  {fmt.safe(run.id)}", "dim"),
        ],
    ]
    if run.restarts:
        count = "1 worker" if run.restarts == 1 else f"{run.restarts} workers"
        text = f"{count} restarted during it: some tasks ran more than once"
        lines.append([(text, "warn")])
    if run.error_type:
        lines += wrapped(f"{run.error_type}: {run.summary}", width, "bad")
        lines += _story(story, width)
    numbers = [
        [(f"{key:<{KEY_CELLS}} ", "dim"), (value, "")] for key, value in _result(run.result_json)
    ]
    return [*lines, [], *numbers] if numbers else lines


def wrapped(text: str, width: int, role: str = "", indent: str = "") -> list[Line]:
    """Return a text whole, in as many lines as it takes."""
    lines: list[Line] = []
    for line in text.splitlines():
        inner = indent + line[: len(line) - len(line.lstrip())]
        made = wrap(
            fmt.safe(line.strip()),
            max(20, width),
            initial_indent=inner,
            subsequent_indent=inner,
            break_on_hyphens=False,
        )
        lines += [[(each, role)] for each in made or [""]]
    return lines


def _story(story: Story, width: int) -> list[Line]:
    """Return how a run came to fail."""
    lines: list[Line] = []
    for title, told, role in (
        ("traceback", story.traceback, ""),
        (f"the end of the log of {fmt.safe(story.worker)}", story.worker_log, "dim"),
        ("the end of its own log", story.log, "dim"),
    ):
        if told:
            lines += [[], [(title, "title")]]
            lines += [line for text in told for line in wrapped(text, width, role, "  ")]
    return lines


def _result(result_json: str) -> Iterator[tuple[str, str]]:
    """Return the keys and values of an ended run's result, for people."""
    try:
        result = json.loads(result_json).get("result") if result_json else None
    except (ValueError, AttributeError):
        return
    for key, value in result.items() if isinstance(result, dict) else ():
        yield fmt.safe(key.replace("_", " ")), written(value)


def written(value: Any) -> str:
    """Return a value of a result for people.

    >>> written(250000000000), written(0.1 + 0.2), written(6.875e11), written([1.5, 2])
    ('250,000,000,000', '0.3', '6.875000e+11', '1.5, 2')
    >>> written([True, None])
    'yes, –'
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6e}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(written(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{fmt.safe(str(key))} {written(item)}" for key, item in value.items())
    return fmt.safe(str(value))
