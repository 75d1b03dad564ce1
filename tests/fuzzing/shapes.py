"""Strategies of hypothesis: values of any message, and messages with one thing wrong."""

import json
import typing
from array import array
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from gputui.model.series import METRICS, pack
from gputui.protocol.codec import LARGEST_FLOAT, encode
from gputui.protocol.frontend import HistoryTaken
from gputui.protocol.shared import LAST_MOMENT

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**62), 2**62)
REALS = st.floats(-LARGEST_FLOAT, LARGEST_FLOAT)
MOMENTS = st.floats(0, LAST_MOMENT)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
"""Whatever JSON can hold."""


def value_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a field's type."""
    plain = {str: TEXT, int: NUMBERS, float: REALS, bool: st.booleans(), type(None): st.none()}
    if hint in plain:
        return plain[hint]
    if hint is HistoryTaken:
        return st.builds(_history, TEXT, st.lists(TEXT, max_size=2), st.integers(0, 2), MOMENTS)
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        parts = {field.name: value_of(hints[field.name]) for field in fields(hint)}
        return st.builds(hint, **parts | ({"at": MOMENTS} if "at" in parts else {}))
    if typing.get_origin(hint) is tuple:
        first, *rest = typing.get_args(hint)
        if rest == [...]:
            return st.lists(value_of(first), max_size=3).map(tuple)
        return st.tuples(value_of(first), *map(value_of, rest))
    if typing.get_args(hint):
        return st.one_of(*map(value_of, typing.get_args(hint)))
    return st.sampled_from(hint)


def _history(host: str, keys: list[str], rows: int, at: float) -> HistoryTaken:
    """Return a history with as many values as it says; it refuses any other number."""
    values = array("H", [0] * (2 * rows * len(keys) * len(METRICS)))
    return HistoryTaken(host, tuple(keys), at, rows, at, rows, pack(values))


def one_wrong(message: object) -> st.SearchStrategy[bytes]:
    """Return lines like that of a message, with one value somewhere replaced by anything."""
    return one_wrong_in(encode(message))


def one_wrong_in(line: bytes) -> st.SearchStrategy[bytes]:
    """Return lines like this one, with one value somewhere replaced by anything."""
    row = json.loads(line)
    return st.tuples(st.sampled_from(list(_places(row))), ANYTHING).map(
        lambda pair: json.dumps(_replaced(row, *pair)).encode()
    )


def _places(row: Any, before: tuple[int, ...] = ()) -> typing.Iterator[tuple[int, ...]]:
    for i, value in enumerate(row):
        yield (*before, i)
        if isinstance(value, list):
            yield from _places(value, (*before, i))


def _replaced(row: list[Any], place: tuple[int, ...], value: Any) -> list[Any]:
    first, *rest = place
    copy = list(row)
    copy[first] = _replaced(copy[first], tuple(rest), value) if rest else value
    return copy
