"""The filter language of `/`: a line of terms, all of which must hold, → a test.

`idle` is found anywhere in a row, `!idle` must not be; `util < 20`, `mem>20G`, `mem>80%` and
`power>600W` compare a number, `state:idle` or `state=idle` a word, `node-0?:gpu0*` the whole name,
with `*` and `?`. A misspelt field, or a state that there is not, is an error that names the
nearest. Pure: what numbers and words a row has is passed in, so that every view has the same
language over its own rows.

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
>>> parse("util < low", fields)
Traceback (most recent call last):
gputui.errors.UsageError: util<low: a number must follow
>>> parse("utl>20", fields)
Traceback (most recent call last):
gputui.errors.UsageError: utl>20: no field utl; did you mean util?
>>> parse("stat:idle", fields)
Traceback (most recent call last):
gputui.errors.UsageError: stat:idle: no field stat; did you mean state?
"""

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from gputui.errors import UsageError, refuse

Row = TypeVar("Row")
Matches = Callable[[Row], bool]

COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
SIZES = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
TIMES = {"S": 1.0, "M": 60.0, "MIN": 60.0, "H": 3600.0, "D": 86400.0}
UNITS = {"KW": 1000.0, "W": 1.0, "%": 1.0, "°C": 1.0, "°": 1.0, "C": 1.0, "MHZ": 1.0, "S": 1.0}
_COMPARISON = re.compile(r"(\w+)(<=|>=|<|>|=)(.*)")
_SPACED = re.compile(r"\s*(<=|>=|<|>|=)\s*")
_NUMBER = re.compile(r"([-+]?\d[\d,]*\.?\d*)\s*(.*)")


@dataclass(frozen=True)
class Fields(Generic[Row]):
    """The fields of a row that a filter can use."""

    everything: Callable[[Row], str]
    """All that a plain word is looked for in; it begins with the row's name and a space."""
    words: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)
    """Of several, a line each, one must match."""
    numbers: Mapping[str, Callable[[Row], float | None]] = field(default_factory=dict)
    sizes: Mapping[str, Callable[[Row], float | None]] = field(default_factory=dict)
    """In bytes, of numbers that are something else, such as a share, without a size's unit."""
    times: Collection[str] = ()
    """Of numbers, those in seconds."""
    choices: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """All that a word can be, where that is known."""


def parse(text: str, fields: Fields[Row]) -> Matches[Row]:
    """Return the test that a filter describes; raises UsageError.

    A row without the number that is compared does not match.
    """
    tests = [_term(term, fields) for term in _SPACED.sub(r"\1", text).split()]
    return lambda row: all(test(row) for test in tests)


def _term(term: str, fields: Fields[Row]) -> Matches[Row]:
    if term.startswith("!") and len(term) > 1:
        inner = _term(term[1:], fields)
        return lambda row: not inner(row)
    comparison = _COMPARISON.fullmatch(term)
    name, sign, rest = comparison.groups() if comparison else term.partition(":")
    if sign in (":", "=") and name in fields.words:
        matches: Matches[str] = _pattern(rest, lambda choice: choice)
        choices = tuple(fields.choices.get(name, ()))
        if choices and not any(map(matches, choices)):
            raise UsageError(f"{term}: {no_such('', rest, choices)}")
        return _pattern(rest, fields.words[name])
    if comparison:
        return _comparison(term, name, sign, rest, fields)
    if sign and (meant := nearest(name, fields.words)):
        raise UsageError(f"{term}: no field {name}; {meant}")
    if any(wild in term for wild in "*?"):
        return _pattern(term, lambda row: fields.everything(row).partition(" ")[0])
    word = term.lower()
    return lambda row: word in fields.everything(row).lower()


def _comparison(term: str, name: str, sign: str, number: str, fields: Fields[Row]) -> Matches[Row]:
    refuse(
        (name in fields.words, f"{term}: {name} is a word: {name}:{number}"),
        (
            name not in fields.numbers,
            f"{term}: {no_such('field', name, (*fields.numbers, *fields.words))}",
        ),
    )
    try:
        bound, sized = _number(number, TIMES if name in fields.times else SIZES)
    except ValueError:
        raise UsageError(f"{term}: a number must follow") from None
    value_of = fields.numbers[name]
    if sized:
        value_of = fields.sizes.get(name, value_of)

    def matches(row: Row) -> bool:
        value = value_of(row)
        return value is not None and COMPARE[sign](value, bound)

    return matches


def no_such(what: str, name: str, known: Iterable[str]) -> str:
    """Return that nothing is called so, and what may have been meant.

    >>> no_such("column", "utli", ["util", "mem"]), no_such("column", "x", ["util", "mem"])
    ('no column utli; did you mean util?', 'no column x; known: util, mem')
    """
    known = list(known)
    meant = nearest(name, known) or f"known: {', '.join(known)}"
    return f"no {what} {name}; {meant}" if what else f"no {name}; {meant}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name; "" if none is near."""
    near = get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _number(text: str, sizes: Mapping[str, float] = SIZES) -> tuple[float, bool]:
    """Return a number that may bear a unit, and whether it is a size; raises ValueError.

    >>> _number("20"), _number("95%"), _number("1.5k"), _number("0.6kW"), _number("80°C")
    ((20.0, False), (95.0, False), (1536.0, True), (600.0, False), (80.0, False))
    >>> _number("1h", TIMES)
    (3600.0, True)
    """
    found = _NUMBER.fullmatch(text)
    number, unit = (found[1].replace(",", ""), found[2].upper()) if found else ("", text)
    size = sizes.get(unit.removesuffix("B").removesuffix("I"))
    if unit and size is None and unit not in UNITS:
        raise ValueError(text)
    return float(number) * (size or UNITS.get(unit, 1.0)), size is not None


def _pattern(pattern: str, text_of: Callable[[Row], str]) -> Matches[Row]:
    lowered = pattern.lower().replace("[", "[[]")
    return lambda row: any(fnmatchcase(text, lowered) for text in text_of(row).lower().split("\n"))
