"""What there is to say of a run, in lines: parameters, times, each number of its result. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gputui.snapshot import RunState, RunStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.gauges import gauge
from gputui.tui.rendering.lines import Line, wrapped
from gputui.tui.run_story import Story

MARKS = {
    RunState.STARTING: ("◔", "accent"),
    RunState.RUNNING: ("●", "accent"),
    RunState.DONE: ("✔", "good"),
    RunState.FAILED: ("✖", "bad"),
    RunState.CANCELLED: ("■", "dim"),
    RunState.LOST: ("✖", "bad"),
}
"""How a run's state is shown: by shape and role."""
KEY_CELLS = 20
MOST_LINES = 4
"""Of one value of a result."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it is at one moment."""

    run: RunStatus
    took_s: float | None
    """None where it is not known when it ended."""
    began: str

    @classmethod
    def at(cls, run: RunStatus, now: float) -> "RunRow":
        """Return the run with the time that it has taken until `now`."""
        ended_at = run.ended_at if run.state.ended else now
        took_s = None if ended_at is None else ended_at - run.started_at
        return cls(run, took_s, fmt.moment(run.started_at, now))

    @property
    def role(self) -> str:
        """The role that its state is written in."""
        return MARKS[self.run.state][1]

    @property
    def parameters(self) -> str:
        """Its parameters in a line."""
        return fmt.safe(" ".join(f"{name}={value}" for name, value in self.run.parameters))


def run_lines(row: RunRow, width: int, story: Story | None = None, command: str = "") -> list[Line]:
    """Return what there is to say of a run, in lines that are no wider.

    `command` is what runs the same in a shell, "" for none that is worth a line.
    """
    run, story, took = row.run, story or Story(), fmt.elapsed(row.took_s)
    stages = ", ".join(f"{stage} {elapsed_s:.1f} s" for stage, elapsed_s in story.timings)
    title = [
        (f"{MARKS[run.state][0]} {run.state.value}", row.role),
        (f"  {fmt.safe(run.preset)}", "title"),
        (f"  began {row.began}", ""),
        (f", took {took}" if run.state.ended else f", {took} so far", ""),
    ]
    id: Line = [(f"  {fmt.safe(run.id)}", "dim")]
    beside = sum(len(text) for text, _ in (*title, *id)) <= width
    lines: list[Line] = [
        *([[*title, *id]] if beside else [title, id]),
        *wrapped(row.parameters, width, "dim"),
        *wrapped(stages, width, "dim"),
        *_progress(row, width),
    ]
    if run.restarts:
        text = f"{fmt.many(run.restarts, 'worker')} restarted during it: some tasks ran again"
        lines.append([(text, "warn")])
    if run.error_type:
        said, _, hint = run.summary.partition("\n")
        lines += [(), *wrapped(f"{run.error_type}: {said}", width, "bad")]
        lines += wrapped(f"try: {' '.join(hint.split())}", width, "accent") if hint else []
    if command:
        lines += [
            (),
            [("in a shell", "heading")],
            *wrapped(command, width, "accent", "  "),
        ]
    if run.error_type:
        lines += _story(story, width)
    numbers = [line for each in _result(run.result_json) for line in _number(*each, width)]
    return [*lines, (), *numbers] if numbers else lines


def _progress(row: RunRow, width: int) -> list[Line]:
    """Return how far a run is that goes on, and how long it will take at that."""
    run = row.run
    if run.state.ended or not run.total:
        return []
    share = run.done / run.total
    took_s = row.took_s or 0.0
    left = fmt.elapsed(took_s * (1 - share) / share) if share else fmt.MISSING
    after = f" {fmt.count(run.done)}/{fmt.count(run.total)}  {fmt.safe(run.stage)}  {left} left"
    return [[*gauge(share, f"{share:.0%}", max(8, min(60, width - len(after)))), (after, "")]]


def _number(key: str, value: str, width: int) -> list[Line]:
    """Return a number of a result after its name; of a long row of them the first."""
    first, *rest = wrapped(value, width - KEY_CELLS - 1) or [()]
    lines: list[Line] = [[(f"{key:<{KEY_CELLS}} ", "dim"), *first]]
    lines += [[(" " * (KEY_CELLS + 1), ""), *line] for line in rest[: MOST_LINES - 1]]
    return lines if len(rest) < MOST_LINES else [*lines[:-1], [*lines[-1], (" …", "dim")]]


def _story(story: Story, width: int) -> list[Line]:
    """Return how a run came to fail."""
    lines: list[Line] = []
    for title, texts, role in (
        ("traceback", story.traceback, ""),
        (f"last log lines of {fmt.safe(story.worker)}", story.worker_log, "dim"),
        ("last log lines of the run", story.log, "dim"),
    ):
        if texts:
            lines += [(), [(title, "heading")]]
            lines += [line for text in texts for line in wrapped(text, width, role, "  ")]
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
    ('250,000,000,000', '0.3', '6.875e+11', '1.5, 2')
    >>> written([True, None]), written([{"worker": "h:gpu0"}, {"worker": "h:gpu1"}])
    ('yes, –', 'worker h:gpu0\\nworker h:gpu1')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        between = "\n" if any(isinstance(item, dict) for item in value) else ", "
        return between.join(written(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(
            f"{fmt.safe(str(key)).replace('_', ' ')} {written(item)}" for key, item in value.items()
        )
    return fmt.safe(str(value))
