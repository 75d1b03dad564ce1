"""NumPy and CuPy by one code path: what tasks ask about where their arrays live.

A task gets the backend by name; `xp = array_module(backend)` then has `xp.arange`, `xp.linalg`
and the like of either library.
"""

import importlib
from typing import Any


def array_module(backend: str) -> Any:
    """Return the module of this backend, numpy or cupy."""
    return importlib.import_module(backend)


def module_of(array: Any) -> Any:
    """Return the module that an array is of."""
    return array_module("cupy" if hasattr(array, "get") else "numpy")


def to_host(array: Any) -> Any:
    """Return an array, or a number of either library, in host memory."""
    return array.get() if hasattr(array, "get") else array
