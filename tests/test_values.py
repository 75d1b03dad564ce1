"""`gputui.model.values.dataclass` makes what `dataclasses.dataclass` makes."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from gputui.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Fast:
    """A value."""

    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a is below 0")


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    """A value."""

    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a is below 0")


@dataclass(frozen=True, slots=True)
class Below(Fast):
    """A value with one more field."""

    d: float = 0.5


@dataclass(frozen=True, slots=True)
class Empty:
    """A value without any."""


BOTH = pytest.mark.parametrize("kind", [Fast, Usual])


@BOTH
def test_values_are_equal_by_their_fields_and_hashed_so(kind: Any) -> None:
    assert kind(1, c=(2,)) == kind(1, "x", (2,)) != kind(1, "y")
    assert len({kind(1), kind(1), kind(2)}) == 2
    other: Any = Below(1)
    assert kind(1) != (1, "x", ()) and kind(1) != other


@BOTH
def test_a_value_is_shown_replaced_matched_and_taken_apart(kind: Any) -> None:
    value = kind(1, c=(2,))
    assert repr(value) == f"{kind.__name__}(a=1, b='x', c=(2,))"
    assert dataclasses.replace(value, b="z") == kind(1, "z", (2,))
    assert dataclasses.asdict(value) == {"a": 1, "b": "x", "c": (2,)}
    assert [field.name for field in dataclasses.fields(kind)] == ["a", "b", "c"]
    match value:
        case Fast(a, b) | Usual(a, b):
            assert (a, b) == (1, "x")
    assert list(inspect.signature(kind).parameters) == ["a", "b", "c"]


@BOTH
def test_a_value_cannot_be_changed_and_has_no_other_fields(kind: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        kind(1).a = 2
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        kind(1).other = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del kind(1).a
    assert not hasattr(kind(1), "__dict__")


@BOTH
def test_a_value_is_checked_and_refuses_wrong_arguments(kind: Any) -> None:
    with pytest.raises(ValueError, match="below 0"):
        kind(-1)
    for wrong in ({}, {"a": 1, "d": 2}):
        with pytest.raises(TypeError, match="__init__"):
            kind(**wrong)


@pytest.mark.parametrize("value", [Fast(1, c=(2,)), Usual(1), Below(3, d=4.0), Empty()])
def test_a_value_is_copied_and_pickled(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value)


def test_a_value_has_its_bases_fields_first_and_may_have_none() -> None:
    assert repr(Below(1, d=2.0)) == "Below(a=1, b='x', c=(), d=2.0)"
    assert Empty() == Empty() and hash(Empty()) == hash(Empty()) and repr(Empty()) == "Empty()"
