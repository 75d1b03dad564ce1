"""Values that nobody changes: `@frozen` in place of `@dataclass(frozen=True, slots=True)`. Pure."""

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[Value]) -> type[Value]:
    """Make a class a dataclass with slots that mypy keeps frozen.

    Python does not. Of the functions that dataclasses compiles for each class it has the first; the
    others made half of a head's imports.

    >>> @frozen
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), {Point(1): "hashable"}[Point(1)]
    (Point(x=1, y=0), True, 'hashable')
    """
    made: Any = dataclass(slots=True, eq=False, repr=False)(kind)
    names = [each.name for each in fields(made) if each.compare]
    made._compared = attrgetter(*names) if names else staticmethod(lambda value: ())
    made.__eq__, made.__hash__, made.__repr__ = _equal, _hash, _repr
    return made  # type: ignore[no-any-return]


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
