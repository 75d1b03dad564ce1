"""The packages that matter on a host, and their versions, from the names of their metadata."""

import os
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


INFO = re.compile(r"([^-]+)(?:-([^-]+))?(-py[0-9.]+)?\.(dist|egg)-info")
"""A distribution and its version, as its folder or file of metadata is named.

That of a source tree in development (`setup.py develop`) has no version in its name.
Sources: Recording installed projects, PyPA; The Internal Structure of Python Eggs, setuptools.
"""


def installed(
    path: Iterable[str] | None = None, names: Sequence[str] = NAMES
) -> tuple[tuple[str, str], ...]:
    """Return (distribution, version) sorted by name, for those that are there.

    They are looked for in `path`, by default sys.path; as in an import, the first found wins.
    """
    found: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        try:
            entries = sorted(os.listdir(folder))  # noqa: PTH208 - names only
        except OSError:  # the pack, or no folder
            continue
        for metadata in filter(None, map(INFO.fullmatch, entries)):
            version = metadata[2] or _version(Path(folder, metadata[0], "PKG-INFO"))
            found.setdefault(re.sub("[-_.]+", "-", metadata[1]).lower(), version)
    return tuple(sorted((name, found[name]) for name in names if name in found))


def _version(file: Path) -> str:
    """Return the version in a file of metadata, "" for none."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line[8:].strip() for line in lines if line.startswith("Version:")), "")
