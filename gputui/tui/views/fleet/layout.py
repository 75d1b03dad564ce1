"""Lay out the fleet's parts in a given room: a rail at the right, a pane below, or neither. Pure.

A screen is never blank while GPUs exist: what the rows leave free goes to the GPU under the
cursor, below them, or in a rail where they fill a wide page.
"""

from dataclasses import dataclass

from gputui.tui.rendering.detail import LEAST_LINES
from gputui.tui.views.fleet.selection import Zoom

RAIL_FROM = 160
"""Columns from which a rail fits next to rows of GPUs."""
RAIL_LEAST, RAIL_MOST = 56, 76
BELOW_IF_WIDE = 12
"""Free lines from which a wide page has its pane below, not in a rail."""
OUTLIERS_WIDTH = 40
OUTLIERS_FROM = {Zoom.HEAT: 100, Zoom.HOST: 140}
"""Columns from which the outliers stand next to heat and hosts."""


@dataclass(frozen=True, slots=True)
class FleetLayout:
    """Columns of the rail and lines of the pane below; 0 is not there."""

    rail: int = 0
    below: int = 0


def laid_out(zoom: Zoom, width: int, height: int, lines: int) -> FleetLayout:
    """Return where things go when the rows (or cells) take so many of the lines.

    >>> laid_out(Zoom.GPU, 80, 21, 4), laid_out(Zoom.GPU, 80, 21, 18)
    (FleetLayout(rail=0, below=17), FleetLayout(rail=0, below=0))
    >>> laid_out(Zoom.GPU, 200, 57, 55)
    FleetLayout(rail=72, below=0)
    """
    free = height - lines
    if zoom is not Zoom.GPU:
        rail = OUTLIERS_WIDTH if width >= OUTLIERS_FROM[zoom] else 0
        return FleetLayout(rail, free if free >= LEAST_LINES else 0)
    if width >= RAIL_FROM and free < BELOW_IF_WIDE:
        return FleetLayout(rail=max(RAIL_LEAST, min(RAIL_MOST, width * 36 // 100)))
    return FleetLayout(below=free if free >= LEAST_LINES else 0)
