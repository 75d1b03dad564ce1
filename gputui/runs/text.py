"""A result → lines for people: one line a value, tables for lists of rows, long lists cut."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

MOST_ITEMS = 12
"""Of a list that are printed; `--json` has them all."""

WIDTH = 80
"""Where long values are broken; tables are not."""


def text(result: Mapping[str, Any], units: Mapping[str, str] | None = None) -> str:
    """Return a result as people read it.

    >>> print(text({"sum": 2.5, "numbers_per_s": 3_000_000}, {"numbers_per_s": "/s"}))
    sum            2.5
    numbers per s  3,000,000 /s
    """
    units = units or {}
    width = max((len(_words(key)) for key in result), default=0)
    lines: list[str] = []
    for key, value in result.items():
        if _is_table(value):
            lines += ["", *_table(value), ""]
        else:
            shown = f"{_cell(value)} {units.get(key, '')}".rstrip()
            lines.append(f"{_words(key):<{width}}  {_hanging(shown, width + 2)}".rstrip())
    return "\n".join(lines).strip("\n")


def _hanging(shown: str, indent: int) -> str:
    """Return what stands behind a key: more lines begin below the first one."""
    pieces = [piece for line in shown.splitlines() for piece in _wrap(line, WIDTH - indent)]
    return f"\n{' ' * indent}".join(pieces)


def _wrap(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(rows[0])
    cells = [[_cell(row.get(column)) for column in columns] for row in rows[: 10 * MOST_ITEMS]]
    heads = [_words(column) for column in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [
        "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip()
        for row in [heads, *cells]
    ]
    rest = len(rows) - len(cells)
    return lines + ([f"… and {rest:,} more"] if rest else [])


def _cell(value: Any) -> str:
    """Return one value: numbers with four to ten digits, None as –, a long list cut."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        shown = ", ".join(_cell(each) for each in value[:MOST_ITEMS])
        rest = len(value) - MOST_ITEMS
        return f"{shown}, … and {rest:,} more" if rest > 0 else shown
    return str(value)


def _number(value: float) -> str:
    if math.isfinite(value) and value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e15:
        return f"{value:,.10g}"
    return f"{value:.4g}"
