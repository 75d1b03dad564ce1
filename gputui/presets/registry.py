"""Finds presets by name: built in, from the entry points `gputui.presets`, or in a file; or new.

A name is `svd`, the name of an entry point, or `./file.py:thing`, where `thing` is a `Preset`. A
file may import modules next to it, as a script may; `gputui.runs.execution` gives that to the
workers.
"""

import importlib.util
import keyword
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from gputui.errors import PresetError
from gputui.presets.definition import Preset, nearest

# Where each is, in the order in which they are listed.
BUILT_IN = {
    "smoke": "smoke:PRESET",
    "svd": "svd:PRESET",
    "random-sum": "random_sum:PRESET",
    "mean": "mean:PRESET",
    "matmul": "matmul:PRESET",
    "convert": "convert:PRESET",
    "transfer": "transfer:PRESET",
    "torch": "torch:PRESET",
    "dataframe": "dataframe:PRESET",
}


def names() -> tuple[str, ...]:
    """Return the names of all presets: built in first, then those of installed packages."""
    return (*BUILT_IN, *sorted(set(_entry_points()) - set(BUILT_IN)))


def get(name: str) -> Preset:
    """Return the preset of this name.

    Raises:
        PresetError: it is not found, or its file or package does not import.
    """
    if _is_file(name):
        return _from_file(name)
    if name in BUILT_IN:
        return _as_preset(resolve_name(f"gputui.presets.{BUILT_IN[name]}"), name)
    if name not in _entry_points():
        raise PresetError(f"unknown preset '{name}'{_meant(name) or nearest(name, names())}")
    try:
        with redirect_stdout(sys.stderr):  # stdout is for results
            thing = _entry_points()[name].load()
    except (Exception, SystemExit) as error:
        raise PresetError(f"preset '{name}' does not import: {_said(error)}") from error
    return _as_preset(thing, name)


def _meant(name: str) -> str:
    """Return a hint for a file that was not named as one, or ""."""
    stem, colon, attribute = name.partition(":")
    if name.endswith(".ipynb"):
        return f": a notebook; jupyter nbconvert --to script {name} makes a script of it"
    if Path(f"{stem}.py").is_file():
        return f"; did you mean ./{stem}.py{colon}{attribute}?"
    return "; a preset in a file is ./FILE.py:PRESET" if colon else ""


def located(name: str) -> str:
    """Return a name that means the same preset in every working directory."""
    path, attribute = _split(name)
    return f"{path.resolve()}:{attribute}" if _is_file(name) else name


@cache
def _entry_points() -> dict[str, Any]:
    """Return the entry points of installed packages by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="gputui.presets")}


def _from_file(name: str) -> Preset:
    """Return the preset that `./file.py:thing` names; `PRESET` where no thing is named."""
    path, attribute = _split(name)
    if not path.is_file():
        raise PresetError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
    things = vars(_import_file(path.resolve()))
    if attribute not in things:
        found = [key for key, value in things.items() if isinstance(value, Preset)]
        raise PresetError(f"{path} has no '{attribute}'{nearest(attribute, found)}")
    return replace(_as_preset(things[attribute], name), folder=str(path.resolve().parent))


def _is_file(name: str) -> bool:
    return ".py:" in name or name.endswith(".py")


def _split(name: str) -> tuple[Path, str]:
    """Return the file and the thing in it.

    >>> _split("./mine.py:thing")[1], _split("./mine.py")[1]
    ('thing', 'PRESET')
    """
    stem, _, attribute = name.partition(".py:")
    return Path(f"{stem.removesuffix('.py')}.py").expanduser(), attribute or "PRESET"


@cache
def _import_file(path: Path) -> ModuleType:
    """Import a file and forget its module's name, so that its functions travel by value.

    Pickle would name a function of a known module, and no worker could import this one. The
    modules next to it are found from now on, also by an `import` inside its functions.
    """
    spec = importlib.util.spec_from_file_location(f"gputui_preset_{path.stem}", path)
    assert spec and spec.loader  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        with redirect_stdout(sys.stderr):  # stdout is for results
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise PresetError(f"{path} does not import: {_said(error, path)}") from error
    finally:
        del sys.modules[spec.name]
    return module


def _as_preset(thing: object, name: str) -> Preset:
    if not isinstance(thing, Preset):
        raise PresetError(f"{name}: is a {type(thing).__name__}, not a gputui.presets.Preset")
    return thing


def _said(error: BaseException, path: Path | None = None) -> str:
    """Return an import error in a line, with the line of the file that it came from."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error}"  # Python names the file and the line
    said = str(error) if isinstance(error, PresetError) else f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{said} ({path.name}:{lines[-1]})" if path and lines else said


NEW_PRESET = '''\
"""Norms of random matrices, one task each; put what you compute in their place.

    gputui --run ./MODULE.py:PRESET -p count=100
    python -m pytest test_MODULE.py
    python -m pydoc gputui.presets     all that a preset can do
"""

from functools import partial

from gputui.presets import Figure, Job, Machine, Memory, Outcome, Parameter, Preset, array_module


def compute(job: Job) -> Outcome:
    """Runs where you sit: cut the work into tasks, and join what they return."""
    tasks = job.map(partial(norm, job.backend, job["size"]), range(job["count"]))
    norms = job.results(tasks, "norms")
    figure = Figure("line", "norms", "norm", "matrix", x=tuple(range(len(norms))), y=tuple(norms))
    return Outcome({"largest": max(norms), "norms": norms}, figure)


def norm(backend: str, size: int, seed: int) -> float:
    """Runs on a worker, which has its GPU for itself: CuPy there, NumPy on a CPU."""
    xp = array_module(backend)
    return float(xp.linalg.norm(xp.random.default_rng(seed).random((size, size))))


def estimate(values: dict, machine: Machine) -> Memory:
    """What one task takes at its peak: a run that does not fit is refused before it starts."""
    most = int((machine.smallest_bytes / 24) ** 0.5)
    return Memory(3 * 8 * values["size"] ** 2, f"use size ≤ {most:,}")


PRESET = Preset(
    name="NAME",
    summary="norms of random matrices",
    parameters=(
        Parameter("count", int, 8, "how many matrices", minimum=1),
        Parameter("size", int, 1_000, "rows and columns of each", minimum=1, unit="rows"),
    ),
    compute=compute,
    estimate=estimate,
    draws=True,
)
'''

NEW_TEST = '''\
"""MODULE.py on two workers of this machine, against NumPy."""

from pathlib import Path

import numpy as np
from distributed import Client

from gputui import presets
from gputui import runs

FILE = Path(__file__).with_name("MODULE.py")


def test_norms_are_those_of_numpy() -> None:
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        result = runs.execute(client, presets.get(str(FILE)), {"count": 4, "size": 50})
    if result.backend == "numpy":
        drawn = [np.random.default_rng(seed).random((50, 50)) for seed in range(4)]
        np.testing.assert_allclose(result.result["norms"], np.linalg.norm(drawn, axis=(1, 2)))
    assert result.result["largest"] == max(result.result["norms"])
'''


def write_new(name: str, folder: Path) -> tuple[Path, Path]:
    """Write `NAME.py` and `test_NAME.py`, which must not be there yet, and return both paths.

    Raises:
        PresetError: no module can have this name, a file is there, or none can be written.
    """
    stem = name.removesuffix(".py")
    module = stem.replace("-", "_")
    if not module.isidentifier() or keyword.iskeyword(module):
        raise PresetError(f"'{name}': a preset is named as a Python module is: letters, digits, _")
    if stem in BUILT_IN:
        raise PresetError(f"'{name}': gputui has a preset of this name; choose another one")
    paths = folder / f"{module}.py", folder / f"test_{module}.py"
    try:
        for path in paths:
            if path.exists():
                raise PresetError(f"{path} is there already; choose another name, or move it")
        if module in sys.stdlib_module_names or importlib.util.find_spec(module):
            raise PresetError(f"'{name}': {module}.py would hide the module of this name")
        for path, text in zip(paths, (NEW_PRESET, NEW_TEST), strict=True):
            with path.open("x", encoding="utf-8") as file:
                file.write(text.replace("MODULE", module).replace("NAME", stem))
    except OSError as error:
        raise PresetError(f"{path} was not written: {error.strerror}") from error
    return paths
