"""Strategies of hypothesis: values of any message, and messages with one thing wrong."""

import json
import typing
from dataclasses import is_dataclass
from typing import Any

from hypothesis import strategies as st

from gputui.model.bounds import LAST_MOMENT
from gputui.model.series import NOTHING, HistoryTaken
from gputui.protocol.codec import apart, hints_of
from gputui.protocol.typed_codec import encode
from tests.series import packed

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**62), 2**62)
MOMENTS = st.floats(0, LAST_MOMENT)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
"""Whatever JSON can hold."""


def value_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a field's type, within its bounds."""
    hint, bounds, optional = apart(hint)
    value = _value_of(hint, bounds)
    return st.none() | value if optional else value


def _value_of(hint: Any, bounds: Any) -> st.SearchStrategy[Any]:
    if hint is str:
        return TEXT
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(bounds.least, bounds.most)
    if hint is float:
        return st.floats(bounds.least, bounds.most)
    if hint is HistoryTaken:
        return st.builds(_history, TEXT, st.lists(TEXT, max_size=2), st.integers(0, 2), MOMENTS)
    if is_dataclass(hint):
        return st.builds(hint, **{name: value_of(part) for name, part in hints_of(hint).items()})
    if typing.get_origin(hint) is tuple:
        first, *rest = typing.get_args(hint)
        if rest == [...]:
            return st.lists(value_of(first), max_size=3).map(tuple)
        return st.tuples(value_of(first), *map(value_of, rest))
    return st.sampled_from(hint)


def _history(host: str, keys: list[str], rows: int, at: float) -> HistoryTaken:
    """Return a history with as many values as it says; it refuses any other number."""
    values = packed([NOTHING * len(keys)] * (2 * rows))
    return HistoryTaken(host, tuple(keys), at, rows, at, rows, values)


def one_wrong(message: object) -> st.SearchStrategy[bytes]:
    """Return lines like that of a message, with one value somewhere replaced by anything."""
    return one_wrong_in(encode(message))


def one_wrong_in(line: bytes) -> st.SearchStrategy[bytes]:
    """Return lines like this one, with one value somewhere replaced by anything."""
    row = json.loads(line)
    return st.tuples(st.sampled_from(list(_places(row))), ANYTHING).map(
        lambda pair: json.dumps(_replaced(row, *pair)).encode()
    )


Places = typing.Iterator[tuple[int | str, ...]]


def _places(value: Any, before: tuple[int | str, ...] = ()) -> Places:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in inner:
        yield (*before, key)
        if isinstance(part, list | dict):
            yield from _places(part, (*before, key))


def _replaced(value: Any, place: tuple[int | str, ...], new: Any) -> Any:
    first, *rest = place
    copy = value.copy()
    copy[first] = _replaced(copy[first], tuple(rest), new) if rest else new
    return copy
