"""The filter language of `/`: a line of terms, all of which must hold, → a test.

`idle` is found anywhere in a row, `!idle` must not be; `util<20` and `rss>2G` compare a number,
`state:idle` a word, `node-0?:gpu0*` the whole name, with `*` and `?`. Pure: what numbers and
words a row has is passed in, so that every view has the same language over its own rows.

>>> fields = Fields(
...     everything=lambda row: row["name"],
...     words={"state": lambda row: row["state"]},
...     numbers={"util": lambda row: row["util"]},
... )
>>> rows = [{"name": f"h:gpu{n}", "state": "busy" if n else "idle", "util": n} for n in (0, 30)]
>>> def found(text):
...     matches = parse(text, fields)
...     return [row["name"] for row in rows if matches(row)]
>>> found(""), found("util<20"), found("!state:idle"), found("h:gpu3*"), found("GPU0 !gpu3")
(['h:gpu0', 'h:gpu30'], ['h:gpu0'], ['h:gpu30'], ['h:gpu30'], ['h:gpu0'])
>>> parse("util<low", fields)
Traceback (most recent call last):
gputui.tui.filter.FilterError: util<low: a number must follow
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from gputui.errors import GputuiError

Row = TypeVar("Row")
Matches = Callable[[Row], bool]

COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
UNITS = {"%": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_COMPARISON = re.compile(r"(\w+)(<=|>=|<|>|=)(.*)")


class FilterError(GputuiError):
    """A filter that cannot be read; the message says which term and why."""


@dataclass(frozen=True)
class Fields(Generic[Row]):
    """What a row can be asked for."""

    everything: Callable[[Row], str]
    """All that a plain word is looked for in; it begins with the row's name and a space."""
    words: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)
    numbers: Mapping[str, Callable[[Row], float | None]] = field(default_factory=dict)


def parse(text: str, fields: Fields[Row]) -> Matches[Row]:
    """Return the test that a filter describes; raises FilterError.

    A row without the number that is compared does not match.
    """
    tests = [_term(term, fields) for term in text.split()]
    return lambda row: all(test(row) for test in tests)


def _term(term: str, fields: Fields[Row]) -> Matches[Row]:
    if term.startswith("!") and len(term) > 1:
        inner = _term(term[1:], fields)
        return lambda row: not inner(row)
    if comparison := _COMPARISON.fullmatch(term):
        return _comparison(comparison, fields)
    name, colon, pattern = term.partition(":")
    if colon and name in fields.words:
        return _pattern(pattern, fields.words[name])
    if any(sign in term for sign in "*?"):
        return _pattern(term, lambda row: fields.everything(row).partition(" ")[0])
    word = term.lower()
    return lambda row: word in fields.everything(row).lower()


def _comparison(term: re.Match[str], fields: Fields[Row]) -> Matches[Row]:
    name, sign, number = term.groups()
    value_of = fields.numbers.get(name)
    if value_of is None:
        known = (
            f"there are {', '.join(fields.numbers)}" if fields.numbers else "there are none here"
        )
        raise FilterError(f"{term[0]}: no number is called {name}; {known}")
    try:
        bound = _number(number)
    except ValueError:
        raise FilterError(f"{term[0]}: a number must follow") from None
    compare = COMPARE[sign]

    def matches(row: Row) -> bool:
        value = value_of(row)
        return value is not None and compare(value, bound)

    return matches


def _number(text: str) -> float:
    """Return a number that may bear a unit; raises ValueError.

    >>> _number("20"), _number("95%"), _number("1.5k")
    (20.0, 95.0, 1536.0)
    """
    unit = UNITS.get(text[-1:].upper())
    return float(text) if unit is None else float(text[:-1]) * unit


def _pattern(pattern: str, text_of: Callable[[Row], str]) -> Matches[Row]:
    lowered = pattern.lower()
    if any(sign in lowered for sign in "*?"):
        return lambda row: fnmatchcase(text_of(row).lower(), lowered)
    return lambda row: text_of(row).lower() == lowered
