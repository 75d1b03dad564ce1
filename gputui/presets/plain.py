"""What a preset returns → values that JSON holds, whatever numbers it was computed with.

JSON has no NaN and no infinity: in results, figures, parameters and records they are the texts
"nan", "inf" and "-inf", which `float` reads.
"""

import json
import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a value made of dicts, lists, texts, numbers and None only.

    NumPy's and CuPy's numbers and arrays become Python's; NaN and infinity become text; anything
    else becomes what `str` makes of it.

    >>> import numpy as np
    >>> plain({"sum": np.float32(0.5), "s": np.arange(3), "worst": float("nan"), 1: {2}})
    {'sum': 0.5, 's': [0, 1, 2], 'worst': 'nan', '1': [2]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that every reader takes.

    >>> json_text({"least": float("inf")})
    '{"least": "inf"}'
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)
