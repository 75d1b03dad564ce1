"""A result → lines of text: one line a value, tables for lists of rows, long lists cut."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gputui.model.plain_text import aligned

MOST_ITEMS = 12
"""Of a list that are printed; `--json` has them all."""

SUFFIXES = {"s": "_s", "B/s": "_bytes_per_s"}
"""How a key ends that names its unit."""

WIDTH = 80
"""Where long values are broken; tables are not."""

PREFIXED = frozenset({"B", "B/s", "FLOP/s", "/s"})
"""Units that take k, M, G and T."""


def text(
    result: Mapping[str, Any], units: Mapping[str, str] | None = None, most: int = WIDTH
) -> str:
    """Return a result as text, long values broken at `most` characters.

    >>> print(text({"sum": 2.5, "numbers_per_s": 3_000_000}, {"numbers_per_s": "/s"}))
    sum            2.5
    numbers per s  3 M/s
    """
    units = units or {}
    words = {key: _words(key, units.get(key, "")) for key in result}
    width = max(map(len, words.values()), default=0)
    lines: list[str] = []
    for key, value in result.items():
        if _is_table(value):
            lines += ["", *_table(value, units, most), ""]
        else:
            shown = _cell(value, units.get(key, ""))
            lines.append(f"{words[key]:<{width}}  {_hanging(shown, width + 2, most)}".rstrip())
    return "\n".join(lines).strip("\n")


def html(result: Mapping[str, Any], units: Mapping[str, str] | None = None) -> str:
    """Return a result as a table of HTML, with tables in it for lists of rows.

    >>> html({"a": 2, "took_s": 0.5}, {"took_s": "s"})
    '<table><tr><th>a</th><td>2</td></tr><tr><th>took</th><td>0.5 s</td></tr></table>'
    """
    units = units or {}
    rows = []
    for key, value in result.items():
        unit = units.get(key, "")
        cell = _html_rows(value, units) if _is_table(value) else escape(_cell(value, unit))
        rows.append(f"<tr><th>{escape(_words(key, unit))}</th><td>{cell}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _html_rows(rows: Sequence[Mapping[str, Any]], units: Mapping[str, str]) -> str:
    heads, *cells = _rows(rows, units)
    lines = [f"<tr>{''.join(f'<th>{escape(each)}</th>' for each in heads)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in cells]
    rest = len(rows) - len(cells)
    return f"<table>{''.join(lines)}</table>" + (f"… and {rest:,} more" if rest else "")


def brief(result: Mapping[str, Any], units: Mapping[str, str] | None = None) -> str:
    """Return the first number or truth of a result, or of its first table; "" without one.

    >>> brief({"library": "x", "slowest_bytes_per_s": 1.35e8}, {"slowest_bytes_per_s": "B/s"})
    'slowest 135 MB/s'
    >>> brief({"rows": [{"name": "one core", "ok": True}]})
    'ok yes'
    """
    units = units or {}
    for key, value in result.items():
        if isinstance(value, int | float):
            return f"{_words(key, units.get(key, ''))} {_cell(value, units.get(key, ''))}"
        if _is_table(value):
            return brief(value[0], units)
    return ""


def _hanging(shown: str, indent: int, most: int) -> str:
    """Wrap the text behind a key: further lines begin below the first one."""
    pieces = [piece for line in shown.splitlines() for piece in _wrap(line, most - indent)]
    return f"\n{' ' * indent}".join(pieces)


def _wrap(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, max(1, width), break_long_words=False, break_on_hyphens=False)


def _words(key: str, unit: str = "") -> str:
    """Return a key as words, without a unit that stands behind each value.

    >>> _words("elapsed_s", "s"), _words("pinned_bytes_per_s", "B/s"), _words("elapsed_s")
    ('elapsed', 'pinned', 'elapsed s')
    """
    return key.removesuffix(SUFFIXES.get(unit, "")).replace("_", " ")


def _is_table(value: Any) -> bool:
    rows = value if isinstance(value, list | tuple) else ()
    return bool(rows) and all(isinstance(row, Mapping) for row in rows)


def _table(rows: Sequence[Mapping[str, Any]], units: Mapping[str, str], most: int) -> list[str]:
    heads, *cells = _rows(rows, units)
    lines = aligned([heads, *cells])
    if max(map(len, lines)) > most:
        lines = aligned([*_broken(heads, cells), *cells])
    rest = len(rows) - len(cells)
    return lines + ([f"… and {rest:,} more"] if rest else [])


def _rows(rows: Sequence[Mapping[str, Any]], units: Mapping[str, str]) -> list[list[str]]:
    """Return the heads of the columns, and the cells of the first rows."""
    columns = list(rows[0])
    return [
        [_words(column, units.get(column, "")) for column in columns],
        *(
            [_cell(row.get(column), units.get(column, "")) for column in columns]
            for row in rows[: 10 * MOST_ITEMS]
        ),
    ]


def _broken(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return headings wrapped to the width of their columns, where words allow it."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    broken = [_wrap(head, width) for head, width in zip(heads, widths, strict=True)]
    height = max(map(len, broken))
    raised = [[*[""] * (height - len(lines)), *lines] for lines in broken]
    return list(zip(*raised, strict=True))


def _cell(value: Any, unit: str = "") -> str:
    """Return one value: numbers with four to ten digits, None as –, a long list cut."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and unit:
        return _measured(value, unit)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return _list(value, unit)
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(key))} {_cell(each)}" for key, each in value.items())
    return str(value)


def _list(values: Sequence[Any], unit: str) -> str:
    if values and isinstance(values[0], list | tuple):
        rows = values[:MOST_ITEMS]
        return "\n".join(aligned([[_cell(each, unit) for each in row] for row in rows]))
    shown = ", ".join(_cell(each, unit) for each in values[:MOST_ITEMS])
    rest = len(values) - MOST_ITEMS
    return f"{shown}, … and {rest:,} more" if rest > 0 else shown


def _measured(value: float, unit: str) -> str:
    """Return a value with its unit, in three digits.

    >>> _measured(49.83e12, "FLOP/s"), _measured(2.5, "s")
    ('49.8 TFLOP/s', '2.5 s')
    """
    if unit in PREFIXED:
        for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= scale:
                return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"


def _number(value: float) -> str:
    if math.isfinite(value) and value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e15:
        return f"{value:,.10g}"
    return f"{value:.4g}"
