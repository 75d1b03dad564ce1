"""What gputui overrides in distributed is there, and a release without it is refused."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

import gputui.client
import gputui.engine
import gputui.head.scheduler
import gputui.worker
from gputui.engine.overrides import overriding, require
from gputui.errors import ClusterError

ROOMS = (gputui.client, gputui.engine, gputui.head.scheduler, gputui.worker)
OPTIONAL = ("gputui.worker.cupy_setup", "gputui.client.notebook")
"""They import what need not be installed."""
PROGRAMS = re.compile(r"__main__$|\.there$")


def modules(room: ModuleType) -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        if info.name not in OPTIONAL and not PROGRAMS.search(info.name):
            yield importlib.import_module(info.name)


def of_dask(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("distributed", "dask")


def of_ours() -> set[type]:
    values = [
        value for room in ROOMS for module in modules(room) for value in vars(module).values()
    ]
    classes = {value for value in values if isinstance(value, type)}
    return {each for each in classes if not of_dask(each) and any(map(of_dask, each.__mro__))}


def next_of(kind: type, name: str) -> type:
    """The class below, of which this one overrides the name; object for a name of its own."""
    return next((base for base in kind.__mro__[1:] if name in vars(base)), object)


def test_each_class_says_what_it_overrides_of_dask() -> None:
    unsaid = []
    for kind in of_ours():
        said = vars(kind).get("overridden", frozenset())
        named = (name for name in vars(kind) if not name.startswith(("__", "_abc")))
        dasks = {name for name in named if of_dask(next_of(kind, name))}
        unsaid += [f"{kind.__name__}.{name}" for name in sorted(dasks - said)]
    assert unsaid == []


class Dasks:
    def _begin(self, key: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"_start": "self key"}, r"Dasks\._start, which gputui uses: install"),
        ({"_begin": "self"}, r"Dasks\._begin\(self\), which"),
        ({"_kind": None}, r"Dasks\._kind, which"),
    ],
)
def test_a_release_that_renamed_a_part_is_refused(given: dict[str, str | None], said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        require(Dasks, **given)
    with pytest.raises(ClusterError, match=said):
        overriding(**given)(type("Ours", (Dasks,), {}))
    require(Dasks, _begin="self key")
