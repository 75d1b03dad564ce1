"""The parts of a preset: plain frozen values that anything may read without running it.

The command line and the screen's forms are made from `Parameter`, the check before a run from
`Library` and `Memory`, what is printed, drawn and saved after it from `Outcome` and its `Figure`.

Results and figures may hold numbers that are not finite. JSON has none of them: in `--json`
objects and records they are the texts "nan", "inf" and "-inf", which `float` reads.
"""

import contextlib
import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from numbers import Number
from os import PathLike
from typing import Any

from gputui.errors import PresetError, RunError
from gputui.model.frozen import frozen
from gputui.presets.job import Job, Machine, Value

MOST_NUMBERS = 10**13  # of a matrix: 80 TB
MOST_DEPTH = 64  # of a result; deeper values are shown as "…"
NO_NUMBER = "nothing to draw, no number is finite"
RAPIDS_INSTALL = "pip install 'gputui[rapids]'; or choose the CPU with the backend numpy"


@frozen
class Parameter:
    """One `-p name=value` of a preset; `cpu_default` is its default on CPUs where that differs."""

    name: str
    type: type[int] | type[float] | type[str] | type[bool]
    default: Value
    help: str
    cpu_default: Value = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        """Raise PresetError where a default is no value of the parameter."""
        if self.type not in (int, float, str, bool):
            raise PresetError(f"parameter {self.name}: write type=int, float, str or bool")
        for field_name in ("default", "cpu_default"):
            given = getattr(self, field_name)
            written = f"parameter {self.name}: {field_name}={given!r}"
            try:
                value = None if given is None else self.parse(given)
            except PresetError:
                raise PresetError(f"{written}: write {self.bounds}") from None
            if type(value) is not type(given) and isinstance(given, str):
                raise PresetError(f"{written} is text: write {field_name}={value!r}")

    @property
    def bounds(self) -> str:
        """Describe the accepted values.

        >>> Parameter("rows", int, 10, "", minimum=1, unit="rows").bounds
        'an integer of at least 1'
        """
        if self.choices:
            return "one of " + ", ".join(self.choices)
        noun = {int: "an integer", float: "a number", bool: "true or false", str: "text"}[self.type]
        if self.minimum is not None and self.maximum is not None:
            return f"{noun} from {self.minimum:,} to {self.maximum:,}"
        if self.minimum is not None:
            return f"{noun} of at least {self.minimum:,}"
        return f"{noun} of at most {self.maximum:,}" if self.maximum is not None else noun

    def default_for(self, backend: str) -> Value:
        """Return the default on this backend."""
        on_cpu = backend == "numpy" and self.cpu_default is not None
        return self.cpu_default if on_cpu else self.default

    def parse(self, given: object) -> Value:
        """Return the value that a text writes, or that Python code gives.

        Raises:
            PresetError: it is of another type, out of bounds, or none of the choices.

        >>> Parameter("rows", int, 10, "", minimum=1).parse("1e6")
        1000000
        >>> Parameter("rows", int, 10, "").parse(2.0)
        2
        >>> Parameter("axis", str, "0", "", choices=("0", "1")).parse(1)
        '1'
        """
        try:
            if self.default is None and given in (None, "auto"):
                return None
            value = self._converted(given)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise PresetError(f"must be {self.bounds}") from None
        if isinstance(value, str) and self.choices and value not in self.choices:
            raise PresetError(f"must be {self.bounds}{did_you_mean(value, self.choices)}")
        least = -math.inf if self.minimum is None else self.minimum
        most = math.inf if self.maximum is None else self.maximum
        if isinstance(value, int | float) and not least <= value <= most:
            raise PresetError(f"must be {self.bounds}")
        return value

    def _converted(self, given: Any) -> Value:
        value = given.item() if hasattr(given, "item") else given  # NumPy's numbers
        if isinstance(value, str):
            return _READERS[self.type](value.strip())
        if self.type is str and str(value) in self.choices:
            return str(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and self.type in (int, float):
            return float(value) if self.type is float else _whole(value)
        if type(value) is not self.type:
            raise TypeError(value)
        return value


def _integer(text: str) -> int:
    """Return an integer written as 1000000, 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        return _whole(float(text))


def _whole(value: float) -> int:
    """Return a number as an integer; raises ValueError or OverflowError where it is not one."""
    if value != int(value):
        raise ValueError(value)
    return int(value)


_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_READERS: Mapping[type, Callable[[str], Value]] = {
    int: _integer,
    float: float,
    bool: lambda text: _BOOLEANS[text.lower()],
    str: str,
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean …?)" with the names like this one; "" without one.

    >>> did_you_mean("Mean", ["mean", "sum", "median"])
    " (did you mean 'mean' or 'median'?)"
    """
    by_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=3, cutoff=0.6)
    names = " or ".join(f"'{by_case[each]}'" for each in close)
    return f" (did you mean {names}?)" if names else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean …?)" or the whole list, to stand behind an unknown name."""
    known = list(known)
    there = f"are {', '.join(known)}" if len(known) > 1 else f"is {known[0] if known else 'none'}"
    return did_you_mean(name, known) or f": there {there}"


def refuse_too_many(preset: str, values: Mapping[str, Any]) -> None:
    """Raise PresetError for a matrix of which even the list of blocks would be too long.

    With the preset's name it is a `check` of those that have `rows` and `cols`.
    """
    rows, cols = values["rows"], values["cols"]
    if rows * cols > MOST_NUMBERS:
        raise PresetError(
            f"{preset}: rows={rows} cols={cols}: {Decimal(rows * cols):.0e} numbers are too many; "
            f"at most {MOST_NUMBERS:.0e}"
        )


@frozen
class Library:
    """A library that a preset needs on every worker of these backends."""

    module: str
    install: str
    backends: tuple[str, ...] = ("cupy", "numpy")


@frozen
class Memory:
    """One task's peak of memory, and what to change if that is too much.

    `peak_bytes` is compared with `Machine.smallest_bytes`. `change` is as in
    "use chunk_rows ≤ 40,000"; "" where nothing helps.
    """

    peak_bytes: int
    change: str = ""


@frozen
class Figure:
    """Data of one picture, drawn in the terminal and as PNG.

    `kind` is line (`x` and `y`), bar (`labels` and `y`), or heat (`labels` of the rows and
    `matrix`, in which None is an empty cell). `logarithmic` is the scale of a line's y. A record's
    figure is read by `msgspec.convert(record, Figure, strict=False)`.
    """

    kind: str
    title: str
    y_label: str = ""
    x_label: str = ""
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    matrix: tuple[tuple[float | None, ...], ...] = ()
    logarithmic: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError where nothing can draw it, so that an author's first run says so."""
        sides = {
            "line": ("x", len(self.x), "y", len(self.y)),
            "bar": ("labels", len(self.labels), "y", len(self.y)),
            "heat": ("labels", len(self.labels or self.matrix), "matrix", len(self.matrix)),
        }
        if self.kind not in sides:
            raise ValueError(f"a figure is one of {', '.join(sides)}, not {self.kind!r}")
        first, one, second, other = sides[self.kind]
        if one != other:
            raise ValueError(f"a {self.kind} has as many {first} as {second}, not {one, other}")

    def finite(self) -> "Figure | None":
        """Return the figure without the numbers that are not finite; None if no number is left.

        The title counts the points that are left out, a bar without a length says why in its
        label, a cell is empty; values of zero and below have no logarithmic scale.
        """
        if self.kind == "heat":
            rows = tuple(tuple(map(_finite, row)) for row in self.matrix)
            known = any(value is not None for row in rows for value in row)
            return replace(self, matrix=rows) if known else None
        pairs = [(_finite(a), _finite(b)) for a, b in zip(self.x or self.y, self.y, strict=True)]
        points = [(a, b) for a, b in pairs if a is not None and b is not None]
        if not points:
            return None
        if self.kind == "bar":
            bars = zip(self.labels, self.y, strict=True)
            labels = tuple(n if math.isfinite(y) else f"{n}: {y}" for n, y in bars)
            y = tuple(b or 0.0 for _, b in pairs)
            return replace(self, labels=labels, y=y)
        left_out = len(pairs) - len(points)
        title = f"{self.title} ({left_out} not finite)" if left_out else self.title
        x, y = zip(*points, strict=True)
        return replace(self, title=title, x=x, y=y, logarithmic=self.logarithmic and min(y) > 0)


@lru_cache(maxsize=8)
def figure_of(result_json: str) -> Figure | None:
    """Return the figure of an ended run's `--json` object, or None without one."""
    import msgspec  # hosts are without it, and tasks there may import gputui.presets

    with contextlib.suppress(ValueError, LookupError, TypeError, msgspec.MsgspecError):
        return msgspec.convert(json.loads(result_json)["figure"], Figure, strict=False).finite()
    return None


def _finite(value: float | None) -> float | None:
    """Return a number that can be drawn, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


@frozen
class Outcome:
    """The result of a preset's function.

    `result` is what `--json` prints: numbers, texts, lists and dicts of them. `arrays` are Dask or
    NumPy arrays by name: for `--save`, and kept on the workers as long as this lives.
    """

    result: Mapping[str, Any]
    figure: Figure | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)


def plain(value: Any, name: str = "result", depth: int = MOST_DEPTH) -> Any:
    """Return a value made of dicts, lists, texts, numbers and None only, so many levels deep.

    NumPy's and CuPy's numbers and arrays become Python's; NaN and infinity become text, as dates,
    paths and other numbers do; what is no Unicode in a text, as in a file's name, becomes "?".
    Raises RunError for anything else, which is called `name`.

    >>> import numpy as np
    >>> plain({"sum": np.float32(0.5), "s": np.arange(3), "worst": float("nan"), 1: {2}})
    {'sum': 0.5, 's': [0, 1, 2], 'worst': 'nan', '1': [2]}
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): plain(each, f"{name}[{key!r}]", depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, f"{name}[{at}]", depth - 1) for at, each in enumerate(value)]
    if hasattr(value, "tolist") and not hasattr(value, "__dask_graph__"):
        return plain(value.tolist(), name, depth)
    if isinstance(value, _WRITTEN):
        return plain(str(value))
    raise RunError(
        f"{name} is of type {type(value).__name__}",
        hint="give numbers, texts, lists or dicts, from job.compute(…) or job.results([…])",
    )


_WRITTEN = (Number, Enum, PathLike, date, time, timedelta)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every reader takes.

    >>> json_text({"least": float("inf")})
    '{"least": "inf"}'
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)


@frozen
class Preset:
    """One computation: its name, its parameters and its function.

    - `requires`, `uses_cupy`: what workers need; torch and JAX need no CuPy on a GPU.
    - `estimate`: the values of all parameters and the machine → the memory it needs.
    - `check` raises PresetError where parameters do not go together.
    - `units`: key of the result → its unit, as shown.
    - `arrays`, `draws` declare what else comes of it: the names of the arrays that `--save DIR`
      writes as `NAME.npy`, and whether there is a figure. Without, `--save` and `--figure` are
      refused before anything starts.
    - `folder` is that of its file, for a preset that comes from one: the registry fills it in.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    compute: Callable[[Job], Outcome]
    requires: tuple[Library, ...] = ()
    uses_cupy: bool = True
    estimate: Callable[[Mapping[str, Any], Machine], Memory] | None = None
    check: Callable[[Mapping[str, Any]], None] | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    draws: bool = False
    folder: str = ""

    def __post_init__(self) -> None:
        """Raise PresetError for a mistake in the definition, such as a missing comma."""
        for name, kind in (("parameters", Parameter), ("requires", Library), ("arrays", str)):
            given = getattr(self, name)
            if isinstance(given, kind):
                shown = repr(given) if kind is str else f"{kind.__name__}(…)"
                raise PresetError(f"a comma is missing: write {name}=({shown},)")
            if wrong := [each for each in given if not isinstance(each, kind)]:
                raise PresetError(f"{name} holds {wrong[0]!r}: write a {kind.__name__}")
        names = [each.name for each in self.parameters]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PresetError(f"two parameters are named {twice[0]!r}")
        if not callable(self.compute):
            raise PresetError(f"compute is {self.compute!r}: write the name of a function")

    @property
    def offers(self) -> str:
        """Describe its outputs, each with the option that asks for it."""
        arrays = f"the array{'s' * (len(self.arrays) > 1)} {', '.join(self.arrays)} (--save)"
        figure = ["a figure (--figure)"] * self.draws
        return ", ".join(["its result (also with --json)", *figure, *[arrays] * bool(self.arrays)])

    def parameter(self, name: str) -> Parameter:
        """Return the parameter of this name; raises PresetError with the names there are."""
        known = {each.name: each for each in self.parameters}
        if name not in known:
            raise PresetError(f"no such parameter{nearest(name, known)}")
        return known[name]


@frozen
class ParsedParameters:
    """The parameters that a preset was given.

    `values` has those that are right, `mistakes` the requirement on others: "must be an integer".
    """

    preset: Preset
    given: Mapping[str, object]
    values: Mapping[str, Value]
    mistakes: Mapping[str, str]

    def complete(self, backend: str) -> dict[str, Value]:
        """Return the values of all parameters, with this backend's defaults for those not given.

        Raises:
            PresetError: with a line for each mistake, or where parameters do not go together.
        """
        name, check = self.preset.name, self.preset.check
        if self.mistakes:
            lines = (f"{key}={self.given[key]}: {wrong}" for key, wrong in self.mistakes.items())
            raise PresetError("\n".join(f"{name}: {line}" for line in lines))
        defaults = {each.name: each.default_for(backend) for each in self.preset.parameters}
        completed = {**defaults, **self.values}
        try:
            if check:
                check(completed)
        except PresetError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise PresetError(f"{name}: its check of the parameters failed: {said}") from error
        return completed

    def refuse_mistakes(self, backend: str = "auto") -> None:
        """Raise PresetError where they are right on no backend, before any worker is known."""
        if backend == "auto":
            with contextlib.suppress(PresetError):
                self.complete("numpy")
                return
        self.complete("cupy" if backend == "auto" else backend)


def parse(preset: Preset, given: Mapping[str, object] | ParsedParameters) -> ParsedParameters:
    """Parse texts or values as parameters of a preset; those already parsed stay as they are."""
    if isinstance(given, ParsedParameters):
        return given
    values: dict[str, Value] = {}
    mistakes: dict[str, str] = {}
    for name, one in given.items():
        try:
            values[name] = preset.parameter(name).parse(one)
        except PresetError as error:
            mistakes[name] = str(error)
    return ParsedParameters(preset, given, values, mistakes)
