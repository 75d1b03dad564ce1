"""The parts of distributed that gputui overrides or reads, checked where a class does so.

A method that a release renames is overridden no longer: all starts and computes, and what the
method was there for is not done. So each class names what it overrides with `overriding`, and
`require` names what is read; a release without it is refused with a sentence.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from gputui.errors import ClusterError

Class = TypeVar("Class", bound=type)


def overriding(**parameters: str | None) -> Callable[[Class], Class]:
    """Check that the bases of a class have these methods, with these parameters in a row.

    None stands for an attribute. Raises ClusterError, as `require` does.
    """

    def checked(kind: Class) -> Class:
        for name, expected in parameters.items():
            base = next((base for base in kind.__mro__[1:] if name in vars(base)), kind.__base__)
            require(base, **{name: expected})
        kind.overridden = frozenset(parameters)  # type: ignore[attr-defined]
        return kind

    return checked


def require(kind: Any, **parameters: str | None) -> None:
    """Check that a class has these methods, or attributes.

    >>> require(str, split="self sep maxsplit")
    >>> require(str, splits=None)
    Traceback (most recent call last):
    gputui.errors.ClusterError: this release of builtins has no str.splits, which gputui uses: \
install the releases of dask and distributed that gputui names
    """
    for name, expected in parameters.items():
        try:
            part = inspect.getattr_static(kind, name)
        except AttributeError:
            raise _unusable(kind, name) from None
        if expected is not None:
            found = " ".join(inspect.signature(part).parameters)
            if found != expected:
                raise _unusable(kind, f"{name}({', '.join(expected.split())})")


def _unusable(kind: type, part: str) -> ClusterError:
    package = kind.__module__.partition(".")[0]
    return ClusterError(
        f"this release of {package} has no {kind.__name__}.{part}, which gputui uses: "
        "install the releases of dask and distributed that gputui names"
    )
