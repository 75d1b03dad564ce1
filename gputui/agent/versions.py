"""The versions of installed packages, from their metadata, without importing any."""

import sys
from collections.abc import Iterable
from importlib.metadata import distributions

EXACT = frozenset(
    {
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
    }
)
"""Distributions that are reported when they are there."""

FAMILIES = ("cudf", "cuml", "cupy", "dask-cudf", "raft-dask", "rmm")
"""Those whose name may go on with the CUDA that they were built for."""

BUILDS = ("", *(f"-cu{n}" for n in range(11, 20)), *(f"-cuda{n}x" for n in range(11, 20)))
"""How it then goes on: `cudf-cu12`, `cupy-cuda13x`."""


def installed(path: Iterable[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Return (distribution, version) sorted by name, for those of the packages that are there.

    They are looked for in `path`, by default sys.path; as in an import, the first found wins.
    """
    folders, found = list(sys.path if path is None else path), []
    for name in (*EXACT, *(f"{family}{build}" for family in FAMILIES for build in BUILDS)):
        for each in distributions(name=name, path=folders):
            # `each.version` raises where the metadata is empty.
            text = each.read_text("METADATA") or each.read_text("PKG-INFO") or each.read_text("")
            lines = (text or "").splitlines()
            versions = (line[8:].strip() for line in lines if line.startswith("Version:"))
            found.append((name, next(versions, "")))
            break
    return tuple(sorted(found))
