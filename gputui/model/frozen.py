"""Values that nobody changes: `@frozen` in place of `@dataclass(frozen=True, slots=True)`. Pure."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[Value]) -> type[Value]:
    """Make a class a dataclass with slots that mypy keeps frozen.

    Python does not. With `frozen=True` dataclasses compiles more functions for each class, and
    made half of a head's imports.

    >>> @frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), {Point(1): "hashable"}[Point(1)]
    (Point(x=1, y=0), True, 'hashable')
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)
