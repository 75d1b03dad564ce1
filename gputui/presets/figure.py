"""The picture that a preset may return: plain data, drawn in terminals and as PNG.

Numbers that are not finite may stand in it: `finite` says what of it can be drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

NO_NUMBER = "nothing to draw, no number is finite"


@dataclass(frozen=True, slots=True)
class Figure:
    """Data of one picture, drawn in the terminal and as PNG.

    `kind` is line (`x` and `y`), bar (`labels` and `y`), or heat (`labels` of the rows and
    `matrix`, in which None is an empty cell). `logarithmic` is the scale of y.
    """

    kind: str
    title: str
    y_label: str = ""
    x_label: str = ""
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    matrix: tuple[tuple[float | None, ...], ...] = ()
    logarithmic: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError where nothing can draw it, so that an author's first run says so."""
        sides = {
            "line": (len(self.x), len(self.y)),
            "bar": (len(self.labels), len(self.y)),
            "heat": (len(self.labels) or len(self.matrix), len(self.matrix)),
        }
        if self.kind not in sides:
            raise ValueError(f"a figure is one of {', '.join(sides)}, not {self.kind!r}")
        if sides[self.kind][0] != sides[self.kind][1]:
            first = "x" if self.kind == "line" else "labels"
            second = "matrix" if self.kind == "heat" else "y"
            raise ValueError(
                f"a {self.kind} has as many {first} as {second}, not {sides[self.kind]}"
            )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Figure":
        """Return a figure that was written as JSON; raises TypeError or ValueError."""
        known = {each.name for each in fields(cls)} - {"x", "y", "matrix", "labels"}
        return cls(
            x=tuple(map(float, record.get("x", ()))),
            y=tuple(map(float, record.get("y", ()))),
            matrix=tuple(
                tuple(None if value is None else float(value) for value in row)
                for row in record.get("matrix", ())
            ),
            labels=tuple(map(str, record.get("labels", ()))),
            **{key: value for key, value in record.items() if key in known},
        )

    def finite(self) -> "Figure | None":
        """Return the figure without the numbers that are not finite; None if no number is left.

        The title counts the points that are left out, a bar without a length says why in its
        label, a cell is empty; values of zero and below have no logarithmic scale.
        """
        if self.kind == "heat":
            rows = tuple(tuple(map(_finite, row)) for row in self.matrix)
            known = any(value is not None for row in rows for value in row)
            return replace(self, matrix=rows) if known else None
        pairs = [(_finite(a), _finite(b)) for a, b in zip(self.x or self.y, self.y, strict=True)]
        points = [(a, b) for a, b in pairs if a is not None and b is not None]
        if not points:
            return None
        logarithmic = self.logarithmic and min(b for _, b in points) > 0
        if self.kind == "bar":
            bars = zip(self.labels, self.y, pairs, strict=True)
            labels = tuple(n if b is not None else f"{n}: {raw}" for n, raw, (_, b) in bars)
            y = tuple(b or 0.0 for _, b in pairs)
            return replace(self, labels=labels, y=y, logarithmic=logarithmic)
        left_out = len(pairs) - len(points)
        title = f"{self.title} ({left_out} not finite)" if left_out else self.title
        x, y = tuple(a for a, _ in points), tuple(b for _, b in points)
        return replace(self, title=title, x=x, y=y, logarithmic=logarithmic)


def _finite(value: Any) -> float | None:
    """Return a number that can be drawn, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
