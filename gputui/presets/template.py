"""`gputui presets new NAME`: a preset to begin with, and its test next to it."""

import importlib.util
import keyword
import sys
from pathlib import Path

from gputui.errors import PresetError
from gputui.presets.registry import BUILT_IN

SOURCE = '''\
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

TEST = '''\
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


def write(name: str, folder: Path) -> tuple[Path, Path]:
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
        for path, text in zip(paths, (SOURCE, TEST), strict=True):
            with path.open("x", encoding="utf-8") as file:
                file.write(text.replace("MODULE", module).replace("NAME", stem))
    except OSError as error:
        raise PresetError(f"{path} was not written: {error.strerror}") from error
    return paths
