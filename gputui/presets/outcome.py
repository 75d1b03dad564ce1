"""What a preset returns, as plain data: its picture, and its result as JSON holds it.

Numbers that are not finite may stand in both. `Figure.finite` says what of a picture can be drawn.
JSON has no NaN and no infinity: in results, figures, parameters and records they are the texts
"nan", "inf" and "-inf", which `float` reads.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, time, timedelta
from enum import Enum
from numbers import Number
from os import PathLike
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


MOST_BITS = 14_000
"""Python writes no integer of more than 4,300 decimal digits; its hexadecimal ones it does."""


MOST_DEPTH = 64
"""Deeper values are shown as "…"."""


def plain(value: Any, depth: int = MOST_DEPTH) -> Any:
    """Return a value made of dicts, lists, texts, numbers and None only, so many levels deep.

    NumPy's and CuPy's numbers and arrays become Python's; NaN, infinity and integers of more than
    `MOST_BITS` become text; anything else becomes what `str` makes of it.

    >>> import numpy as np
    >>> plain({"sum": np.float32(0.5), "s": np.arange(3), "worst": float("nan"), 1: {2}})
    {'sum': 0.5, 's': [0, 1, 2], 'worst': 'nan', '1': [2]}
    """
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return hex(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): plain(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, depth - 1) for each in value]
    return plain(value.tolist(), depth) if hasattr(value, "tolist") else str(value)


def strangers(value: Any, name: str = "result", depth: int = MOST_DEPTH) -> list[str]:
    """Return a line for each thing in a result that is no value, with what to write instead.

    >>> strangers({"a": [1, "b", {"c": None}], "d": object()})
    ["result['d'] is an object; make it a number, a text, a list or a dict"]
    """
    if isinstance(value, Mapping | list | tuple):
        named = value.items() if isinstance(value, Mapping) else enumerate(value)
        return [
            line
            for key, each in named
            if depth > 0
            for line in strangers(each, f"{name}[{key!r}]", depth - 1)
        ]
    if isinstance(value, _WRITTEN):
        return []
    kind = type(value).__name__
    if hasattr(value, "__dask_graph__") and value.__dask_graph__() is not None:
        return [f"{name} is lazy, a Dask {kind}; write job.compute(…)"]
    if kind == "Future":
        return [f"{name} is a Future; write job.results([…])[0]"]
    if hasattr(value, "tolist"):
        return []
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return [f"{name} is {article} {kind}; make it a number, a text, a list or a dict"]


_WRITTEN = (type(None), str, Number, set, frozenset, Enum, PathLike, date, time, timedelta)
"""Types that are kept, or converted by `str`."""


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every reader takes.

    >>> json_text({"least": float("inf")})
    '{"least": "inf"}'
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)
