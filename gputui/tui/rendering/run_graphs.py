"""Graphs of all GPUs, or CPU workers, during a run, next to each other. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputui.model.series import Metric
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.detail import GAP, ROWS, side_by_side
from gputui.tui.rendering.gauges import graph
from gputui.tui.rendering.lines import Line
from gputui.tui.rendering.results import RunRow

if TYPE_CHECKING:
    from gputui.model.history import History

LEAST_READINGS = 3
LINES = ROWS + 3
"""Lines that the graphs take, with their titles and the times below."""


def fleet_lines(
    row: RunRow, history: "History", now: float, width: int, *, on_gpus: bool
) -> list[Line]:
    """Return the graphs of a run, from its start to its end; nothing where that was not read."""
    run, cells = row.run, (width - GAP) // 2
    begun_s, ended_s = now - run.started_at, now - (run.ended_at or now)
    blocks: list[list[Line]] = []
    busy = "UTIL" if on_gpus else "CPU"
    for title, metric in ((busy, Metric.UTILIZATION), ("MEM", Metric.MEMORY)):
        values = history.together(metric, begun_s, ended_s)
        known = [value for value in values if value is not None]
        if len(known) < LEAST_READINGS:
            return []
        mean: Line = [(f"{title} ", "dim"), (f"{sum(known) / len(known):.0f} % on average", "")]
        padding = cells - sum(len(text) for text, _ in mean)
        shares = [None if value is None else value / 100 for value in values]
        head: Line = [*mean, (" " * padding, "")]
        blocks.append([head, *graph(_stretched(shares, 2 * cells), cells, ROWS, limit=1.0)])
    took = fmt.elapsed(row.took_s)
    times: Line = [("0:00" + took.rjust(cells - 4), "dim")]
    lines = [side_by_side(parts) for parts in zip(*blocks, strict=True)]
    return [[("GPUS" if on_gpus else "WORKERS", "heading")], *lines, side_by_side([times, times])]


def _stretched(values: Sequence[float | None], number: int) -> list[float | None]:
    """Return `number` values, each the nearest one.

    >>> _stretched([1, 2], 4), _stretched([1, 2, 3, 4], 2)
    ([1, 1, 2, 2], [1, 3])
    """
    return [values[place * len(values) // number] for place in range(number)]
