"""Computations worth a cluster, one file each, and the registry that finds them.

A preset is a `Preset` value: a name, typed parameters, and one function that takes a `Job` (the
workers it may use) and returns an `Outcome` (a result, and perhaps a figure and arrays). To write
your own, copy the shortest file here, `mean.py`, and run it with `--run ./mine.py:PRESET`; modules
beside it are found, on every worker.

Importing this package, or listing what it holds, loads no Dask, NumPy, CuPy or distributed:
a preset imports what it computes with inside its functions.
"""

from gputui.presets.definition import (
    Figure,
    Library,
    Machine,
    Memory,
    Outcome,
    Parameter,
    Preset,
    Value,
    refuse_too_many,
)
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
    "checked",
    "complete",
    "get",
    "located",
    "names",
    "parse_parameters",
    "refuse_too_many",
]
