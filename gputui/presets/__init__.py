"""Computations worth a cluster, one file each, and the registry that finds them.

A preset is a `Preset` value: a name, typed parameters, and one function that takes a `Job` (the
workers it may use) and returns an `Outcome` (a result, and perhaps a figure and arrays):

    # mine.py: gputui --run ./mine.py:PRESET -p count=100
    from functools import partial
    from gputui.presets import Outcome, Parameter, Preset, array_module

    def compute(job):  # where you sit
        tasks = job.map(partial(norm, job.backend), range(job["count"]))
        return Outcome({"norms": job.results(tasks)})

    def norm(backend, seed):  # on a worker, whose GPU it has for itself
        xp = array_module(backend)  # CuPy there, NumPy on a CPU
        return float(xp.linalg.norm(xp.random.default_rng(seed).random((1000, 1000))))

    PRESET = Preset("mine", "norms", (Parameter("count", int, 8, "matrices"),), compute)

`job.py` has all that a job can do, `definition.py` what a preset may declare; `smoke.py` runs once
on every worker, `gridsearch.py` many tasks, `dataframe.py` a Dask collection, `transfer.py` on
chosen workers. Modules beside your file are found, on every worker.

Importing this package, or listing what it holds, loads no Dask, NumPy, CuPy or distributed:
a preset imports what it computes with inside its functions.
"""

from gputui.presets.backends import array_module, module_of, to_host
from gputui.presets.definition import (
    Library,
    Machine,
    Memory,
    Outcome,
    Parameter,
    Preset,
    Value,
    refuse_too_many,
)
from gputui.presets.figure import Figure
from gputui.presets.registry import (
    BUILT_IN,
    checked,
    complete,
    get,
    located,
    names,
    parse_parameters,
)

__all__ = [
    "BUILT_IN",
    "Figure",
    "Library",
    "Machine",
    "Memory",
    "Outcome",
    "Parameter",
    "Preset",
    "Value",
    "array_module",
    "checked",
    "complete",
    "get",
    "located",
    "module_of",
    "names",
    "parse_parameters",
    "refuse_too_many",
    "to_host",
]
