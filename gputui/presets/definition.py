"""The parts of a preset: plain frozen values that anything may read without running it.

The command line and the screen's forms are made from `Parameter`, the check before a run from
`Library` and `Memory`, what is printed, drawn and saved after it from `Outcome`.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gputui.errors import PresetError
from gputui.presets.job import Job, Machine, Value
from gputui.presets.outcome import Figure

MOST_NUMBERS = 10**13
"""Of a matrix, 80 TB of them."""

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One `-p name=value` of a preset."""

    name: str
    type: type[int] | type[float] | type[str] | type[bool]
    default: Value
    help: str
    cpu_default: Value = None
    """The default on CPUs, where it differs; None is the same as `default`."""
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
            if given is None:
                continue
            written = f"parameter {self.name}: {field_name}={given!r}"
            try:
                value = self.parse(given)
            except PresetError:
                raise PresetError(f"{written}: write {self.bounds}") from None
            if isinstance(given, str) and self.type is not str:
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
            value = self._convert(given.strip() if isinstance(given, str) else given)
        except (TypeError, ValueError, OverflowError):
            raise PresetError(f"must be {self.bounds}") from None
        self._check(value)
        return value

    def _convert(self, given: object) -> Value:
        if isinstance(given, str):
            return given if self.type is str else self._read(given)
        value = given.item() if hasattr(given, "item") else given  # NumPy's numbers
        if self.type is str and str(value) in self.choices:
            return str(value)
        if isinstance(value, bool) or self.type in (bool, str):
            if type(value) is not self.type:
                raise TypeError(value)
            return value
        if not isinstance(value, int | float):
            raise TypeError(value)
        return float(value) if self.type is float else _whole(value)

    def _read(self, text: str) -> Value:
        if self.type is bool:
            if text.lower() not in _TRUE | _FALSE:
                raise ValueError(text)
            return text.lower() in _TRUE
        return _integer(text) if self.type is int else float(text)

    def _check(self, value: Value) -> None:
        wrong = bool(self.choices) and value not in self.choices
        if isinstance(value, int | float) and not isinstance(value, bool):
            low = self.minimum is not None and not value >= self.minimum
            high = self.maximum is not None and not value <= self.maximum
            wrong = wrong or low or high or value != value
        if wrong:
            close = close_names(str(value), self.choices)
            hint = f" (did you mean {close}?)" if close else ""
            raise PresetError(f"must be {self.bounds}{hint}")


def close_names(name: str, known: Iterable[str]) -> str:
    """Return the names like this one, quoted; "" without one.

    >>> close_names("Mean", ["mean", "sum", "median"])
    "'mean' or 'median'"
    """
    by_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=3, cutoff=0.6)
    return " or ".join(f"'{by_case[each]}'" for each in close)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean …?)" or the whole list, to stand behind an unknown name."""
    known = list(known)
    if close := close_names(name, known):
        return f" (did you mean {close}?)"
    if len(known) < 2:
        return f": there is {known[0] if known else 'none'}"
    return f": there are {', '.join(known)}"


def refuse_too_many(preset: str, rows: int, cols: int) -> None:
    """Raise PresetError for a matrix of which even the list of blocks would be too long."""
    if rows * cols > MOST_NUMBERS:
        raise PresetError(
            f"{preset}: rows={rows} cols={cols}: {rows * cols:.0e} numbers are too many; "
            f"at most {MOST_NUMBERS:.0e}"
        )


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


RAPIDS_INSTALL = "pip install 'gputui[rapids]'; or choose the CPU with --backend numpy"


@dataclass(frozen=True, slots=True)
class Library:
    """A library that a preset needs on every worker."""

    module: str
    install: str
    backends: tuple[str, ...] = ("cupy", "numpy")
    """The backends that need it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One task's peak of memory, and what to change if that is too much.

    `peak_bytes` is compared with `Machine.smallest_bytes`. `change` is as in
    "use chunk_rows ≤ 40,000"; "" where nothing helps.
    """

    peak_bytes: int
    change: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a preset's function."""

    result: Mapping[str, Any]
    """Numbers, texts, lists and dicts of them: what `--json` prints."""
    figure: Figure | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)
    """Dask or NumPy arrays by name: for `--save`, and kept on the workers as long as this lives."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One computation: its name, its parameters and its function.

    What else comes of it is declared, so that `--save` and `--figure` are refused before anything
    starts where there will be nothing: a preset that names no `arrays` saves none, and one that
    does not say that it `draws` has no figure.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    compute: Callable[[Job], Outcome]
    requires: tuple[Library, ...] = ()
    uses_cupy: bool = True
    """Whether it needs CuPy on a GPU: torch and JAX do not."""
    estimate: Callable[[Mapping[str, Any], Machine], Memory] | None = None
    """Values of all parameters and the machine → the memory it needs."""
    check: Callable[[Mapping[str, Any]], None] | None = None
    """Raises PresetError where parameters do not go together."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Key of the result → its unit, as shown."""
    arrays: tuple[str, ...] = ()
    """Names of the arrays in its outcome: what `--save DIR` writes, as `NAME.npy`."""
    draws: bool = False
    """Whether its outcome has a figure, for `--figure`."""
    folder: str = ""
    """The path of its file, of one that comes from a file: filled in when that is found."""

    def __post_init__(self) -> None:
        """Raise PresetError for a comma that is missing: a tuple of one that is no tuple."""
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


@dataclass(frozen=True, slots=True)
class ParsedParameters:
    """The parameters that a preset was given."""

    preset: Preset
    given: Mapping[str, object]
    values: Mapping[str, Value]
    """Of those that are right."""
    mistakes: Mapping[str, str]
    """The requirement on the value, as in "must be an integer"."""

    def complete(self, backend: str) -> dict[str, Value]:
        """Return the values of all parameters, with this backend's defaults for those not given.

        Raises:
            PresetError: with a line for each mistake, or where parameters do not go together.
        """
        if self.mistakes:
            lines = (f"{key}={self.given[key]}: {wrong}" for key, wrong in self.mistakes.items())
            raise PresetError("\n".join(f"{self.preset.name}: {line}" for line in lines))
        defaults = {each.name: each.default_for(backend) for each in self.preset.parameters}
        completed = {**defaults, **self.values}
        if self.preset.check:
            try:
                self.preset.check(completed)
            except PresetError:
                raise
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                text = f"{self.preset.name}: its check of the parameters failed: {said}"
                raise PresetError(text) from error
        return completed

    def refuse_mistakes(self, backend: str = "auto") -> None:
        """Raise PresetError where they are right on no backend, before any worker is known."""
        problems = []
        for each in ("cupy", "numpy") if backend == "auto" else (backend,):
            try:
                self.complete(each)
            except PresetError as error:
                problems.append(error)
            else:
                return
        raise problems[0]


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
