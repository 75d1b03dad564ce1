"""The versions of installed packages, from their metadata, without importing any.

The files are read here: importing importlib.metadata alone takes longer than that.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

EXACT = frozenset(
    {
        "cloudpickle",
        "cupy",
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
"""Those whose name goes on with the CUDA they were built for: `cupy-cuda13x`, `cudf-cu12`."""

METADATA = re.compile(r"(?P<name>.+?)-[^-]+(-py3[^-]*)?\.(dist|egg)-info")


def installed(path: Iterable[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Return (distribution, version) sorted by name, for those of the packages that are there.

    Each folder of `path` (by default sys.path) is listed once, and only the metadata of the
    packages that matter is opened; as in an import, the first found wins.
    """
    versions: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        for name, metadata in _metadata(Path(folder)):
            if name not in versions and matters(name):
                versions[name] = _version(metadata)
    return tuple(sorted(versions.items()))


def matters(name: str) -> bool:
    """Return whether a distribution of this normalized name is reported.

    >>> [matters(name) for name in ("dask", "cupy-cuda13x", "cudf-cu12", "cupyx", "requests")]
    [True, True, True, False, False]
    """
    return name in EXACT or any(
        name == family or name.startswith(f"{family}-cu") for family in FAMILIES
    )


def _metadata(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the normalized name and the metadata folder of each distribution in a folder."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        match = METADATA.fullmatch(entry.name)
        if match:
            yield re.sub(r"[-_.]+", "-", match["name"]).lower(), entry


def _version(metadata: Path) -> str:
    """Return the Version field of a distribution's metadata, "" where it cannot be read.

    Source: PyPA "Core metadata specifications"; an .egg-info may be a folder or the file itself.
    """
    for file in (metadata / "METADATA", metadata / "PKG-INFO", metadata):
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                return next((line[8:].strip() for line in lines if line.startswith("Version:")), "")
        except OSError:
            continue
    return ""
