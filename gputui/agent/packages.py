"""The packages that matter on a host, and their versions: none is imported."""

import contextlib
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

EXACT = (
    "cloudpickle",
    "dask",
    "dask-cuda",
    "distributed",
    "lz4",
    "msgpack",
    "numba",
    "numba-cuda",
    "numpy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "scipy",
    "toolz",
    "torch",
    "tornado",
    "zarr",
)
"""Distributions that are reported when they are there."""

FAMILIES = ("cudf", "cuml", "cupy", "dask-cudf", "raft-dask", "rmm")
"""Those whose name may go on with the CUDA that they were built for."""

BUILDS = ("", *(f"-cu{n}" for n in range(11, 20)), *(f"-cuda{n}x" for n in range(11, 20)))
"""How it then goes on: `cudf-cu12`, `cupy-cuda13x`."""

NAMES = (*EXACT, *(f"{family}{build}" for family in FAMILIES for build in BUILDS))


def installed(
    path: Iterable[str] | None = None, names: Sequence[str] = NAMES
) -> tuple[tuple[str, str], ...]:
    """Return (distribution, version) sorted by name, for those that are there.

    They are looked for in `path`, by default sys.path; as in an import, the first found wins.
    Source: "Recording installed projects" of the Python Packaging User Guide: the folder is named
    by both. To import importlib.metadata would take as long as half of an agent's imports.
    """
    wanted, found = set(names), dict[str, str]()
    for folder in sys.path if path is None else path:
        with contextlib.suppress(OSError):
            for entry in Path(folder).iterdir():
                if entry.suffix in (".dist-info", ".egg-info"):
                    name, _, version = entry.stem.partition("-")
                    name = re.sub("[-_.]+", "-", name).lower()
                    if name in wanted:
                        version = version.partition("-")[0] or _version(entry)
                        found.setdefault(name, version)
    return tuple(sorted(found.items()))


def _version(folder: Path) -> str:
    """Return the version in the metadata of a folder that has none in its name: a source's own."""
    from importlib.metadata import PathDistribution

    return PathDistribution(folder).version
