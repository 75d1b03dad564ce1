"""The packages that matter on a host, and their versions: none is imported."""

import contextlib
import os
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

    They are looked for in `path`, by default sys.path; as in an import, the first found wins. Both
    are in the names of metadata's folders: importlib.metadata takes longer to import than that.
    """
    found: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder or "."):  # noqa: PTH208 - names only
                stem, _, kind = entry.rpartition(".")
                name, *version = stem.split("-")
                name = name.replace("_", "-").lower()
                if kind in ("dist-info", "egg-info") and name in names and name not in found:
                    found[name] = version[0] if version else _version(Path(folder, entry))
    return tuple(sorted(found.items()))


def _version(folder: Path) -> str:
    """Return the version of what is installed from its source, whose folder has none in its name.

    Source: setuptools, `setup.py develop`.
    """
    with contextlib.suppress(OSError):
        lines = (folder / "PKG-INFO").read_text(errors="replace").splitlines()
        return next((line[8:].strip() for line in lines if line.startswith("Version:")), "")
    return ""
