"""The packages that matter on a host, and their versions, from metadata: none is imported."""

import sys
from collections.abc import Iterable, Sequence

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
    """
    from importlib.metadata import distributions  # half as much as all else that an agent imports

    folders, found = list(sys.path if path is None else path), []
    for name in names:
        first = next(iter(distributions(name=name, path=folders)), None)
        if first is not None:
            # `first.version` raises where the metadata is empty.
            text = first.read_text("METADATA") or first.read_text("PKG-INFO") or first.read_text("")
            lines = (text or "").splitlines()
            versions = (line[8:].strip() for line in lines if line.startswith("Version:"))
            found.append((name, next(versions, "")))
    return tuple(sorted(found))
