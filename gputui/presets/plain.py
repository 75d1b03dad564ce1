"""A preset's result → values that JSON holds, whatever numbers it was computed with.

JSON has no NaN and no infinity: in results, figures, parameters and records they are the texts
"nan", "inf" and "-inf", which `float` reads.
"""

import json
import math
from collections.abc import Mapping
from datetime import date, time, timedelta
from enum import Enum
from numbers import Number
from os import PathLike
from typing import Any

MOST_BITS = 14_000
"""Python writes no integer of more than 4,300 decimal digits; its hexadecimal ones it does."""


MOST_DEPTH = 64
"""Deeper values are shown as "…"."""


def plain(value: Any, depth: int = MOST_DEPTH) -> Any:
    """Return a value made of dicts, lists, texts, numbers and None only, so many levels deep.

    NumPy's and CuPy's numbers and arrays become Python's; NaN, infinity and integers of more than
    `MOST_BITS` become text; anything else becomes what `str` makes of it.

    >>> import numpy as np
    >>> plain({"sum": np.float32(0.5), "s": np.arange(3), "worst": float("nan"), 1: {2}})
    {'sum': 0.5, 's': [0, 1, 2], 'worst': 'nan', '1': [2]}
    """
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return hex(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth <= 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): plain(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, depth - 1) for each in value]
    return plain(value.tolist(), depth) if hasattr(value, "tolist") else str(value)


def strangers(value: Any, name: str = "result", depth: int = MOST_DEPTH) -> list[str]:
    """Return a line for each thing in a result that is no value, with what to write instead.

    >>> strangers({"a": [1, "b", {"c": None}], "d": object()})
    ["result['d'] is an object; make it a number, a text, a list or a dict"]
    """
    if isinstance(value, Mapping | list | tuple):
        named = value.items() if isinstance(value, Mapping) else enumerate(value)
        return [
            line
            for key, each in named
            if depth > 0
            for line in strangers(each, f"{name}[{key!r}]", depth - 1)
        ]
    if isinstance(value, _WRITTEN):
        return []
    kind = type(value).__name__
    if hasattr(value, "__dask_graph__") and value.__dask_graph__() is not None:
        return [f"{name} is lazy, a Dask {kind}; write job.compute(…)"]
    if kind == "Future":
        return [f"{name} is a Future; write job.results([…])[0]"]
    if hasattr(value, "tolist"):
        return []
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return [f"{name} is {article} {kind}; make it a number, a text, a list or a dict"]


_WRITTEN = (type(None), str, Number, set, frozenset, Enum, PathLike, date, time, timedelta)
"""Types that are kept, or converted by `str`."""


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every reader takes.

    >>> json_text({"least": float("inf")})
    '{"least": "inf"}'
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)
