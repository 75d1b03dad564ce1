"""A run → text: its result in lines, one a value, and facts, each under a label. Pure.

`--run`, `gputui runs` and the screen show these.
"""

import json
import math
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputui.model.plain_text import MISSING, aligned, many
from gputui.model.snapshot import RunStatus
from gputui.model.usage import Idle, Usage

MOST_ITEMS = 12
"""Of a list that are printed; `--json` has them all."""

SUFFIXES = {"s": "_s", "B/s": "_bytes_per_s"}
"""How a key ends that names its unit."""

WIDTH = 80
"""Where long values are broken; tables are not."""

PREFIXED = frozenset({"B", "B/s", "FLOP/s", "/s"})
"""Units that take k, M, G and T."""

GIB = 2**30


def text(
    result: Mapping[str, Any], units: Mapping[str, str] | None = None, most: int = WIDTH
) -> str:
    """Return a result as text, long values broken at `most` characters.

    >>> print(text({"sum": 2.5, "numbers_per_s": 3_000_000}, {"numbers_per_s": "/s"}))
    sum            2.5
    numbers per s  3 M/s
    """
    units = units or {}
    words = {key: _words(key, units.get(key, "")) for key in result}
    width = max(map(len, words.values()), default=0)
    lines: list[str] = []
    for key, value in result.items():
        if _is_table(value):
            lines += ["", *_table(value, units), ""]
        else:
            shown = _cell(value, units.get(key, ""))
            lines.append(f"{words[key]:<{width}}  {_hanging(shown, width + 2, most)}".rstrip())
    return "\n".join(lines).strip("\n")


def brief(result: Mapping[str, Any], units: Mapping[str, str] | None = None) -> str:
    """Return the first number or truth of a result, or of its first table; "" without one.

    >>> brief({"library": "x", "slowest_bytes_per_s": 1.35e8}, {"slowest_bytes_per_s": "B/s"})
    'slowest 135 MB/s'
    >>> brief({"rows": [{"name": "one core", "ok": True}]})
    'ok yes'
    """
    units = units or {}
    for key, value in result.items():
        if isinstance(value, int | float):
            return f"{_words(key, units.get(key, ''))} {_cell(value, units.get(key, ''))}"
        if _is_table(value):
            return brief(value[0], units)
    return ""


def _hanging(shown: str, indent: int, most: int) -> str:
    """Wrap the text behind a key: further lines begin below the first one."""
    wrapper = textwrap.TextWrapper(
        max(1, most - indent), break_long_words=False, break_on_hyphens=False
    )
    pieces = [piece for line in shown.splitlines() for piece in wrapper.wrap(line)]
    return f"\n{' ' * indent}".join(pieces)


def _words(key: str, unit: str = "") -> str:
    """Return a key as words, without a unit that stands behind each value.

    >>> _words("elapsed_s", "s"), _words("pinned_bytes_per_s", "B/s"), _words("elapsed_s")
    ('elapsed', 'pinned', 'elapsed s')
    """
    return key.removesuffix(SUFFIXES.get(unit, "")).replace("_", " ")


def _is_table(value: Any) -> bool:
    rows = value if isinstance(value, list | tuple) else ()
    return bool(rows) and all(isinstance(row, Mapping) for row in rows)


def _table(rows: Sequence[Mapping[str, Any]], units: Mapping[str, str]) -> list[str]:
    """Return the heads of the columns, and the first rows."""
    columns, shown = list(rows[0]), rows[: 10 * MOST_ITEMS]
    heads = [_words(column, units.get(column, "")) for column in columns]
    cells = [[_cell(row.get(each), units.get(each, "")) for each in columns] for row in shown]
    rest = len(rows) - len(shown)
    return aligned([heads, *cells]) + [f"… and {rest:,} more"] * bool(rest)


def _cell(value: Any, unit: str = "") -> str:
    """Return one value: numbers with four to ten digits, None as –, a long list cut."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and unit:
        return _measured(value, unit)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return _list(value, unit)
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(key))} {_cell(each)}" for key, each in value.items())
    return str(value)


def _list(values: Sequence[Any], unit: str) -> str:
    if values and isinstance(values[0], list | tuple):
        rows = values[:MOST_ITEMS]
        return "\n".join(aligned([[_cell(each, unit) for each in row] for row in rows]))
    shown = ", ".join(_cell(each, unit) for each in values[:MOST_ITEMS])
    rest = len(values) - MOST_ITEMS
    return f"{shown}, … and {rest:,} more" if rest > 0 else shown


def _measured(value: float, unit: str) -> str:
    """Return a value with its unit, in three digits.

    >>> _measured(49.83e12, "FLOP/s"), _measured(2.5, "s"), _measured(7.4e-05, "s")
    ('49.8 TFLOP/s', '2.5 s', '0.074 ms')
    """
    if unit == "s" and 0 < value < 0.1:
        return f"{1e3 * value:.3g} ms"
    if unit in PREFIXED:
        for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= 0.9995 * scale:
                return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:,.0f} {unit}" if abs(value) >= 999.5 else f"{value:.3g} {unit}"


def _number(value: float) -> str:
    if math.isfinite(value) and value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e15:
        return f"{value:,.10g}"
    return f"{value:.4g}"


def usage_facts(usage: Usage | None) -> dict[str, str]:
    """Return the usage of a run as facts; no figure that nobody could read.

    >>> usage_facts(Usage(3600.0, gpus=2, gpu_hours=2.0, device_memory_peak_bytes=130 * GIB,
    ...     energy_wh=812.5, idle_s=60.0, idle_why=((Idle.DATA, 60.0),)))
    ... # doctest: +NORMALIZE_WHITESPACE
    {'GPUs': '2, for 2 GPU hours', 'device memory': '130 GiB at most on one GPU',
     'energy': '812.5 Wh', 'idle': '60 s of all GPUs together: waiting for data 60 s'}
    """
    if usage is None:
        return {}
    measured = (("NVLink", usage.nvlink_bytes), ("network", usage.network_bytes))
    between = ", ".join(f"{way} {_measured(size, 'B')}" for way, size in usage.moved if size)
    by_way = [f"{between} between workers" if between else ""]
    by_way += [f"{way} {_measured(size, 'B')}" for way, size in measured if size]
    idle = f"{usage.idle_s:,.0f} s of all GPUs together: {idle_text(usage.idle_why)}"
    slowest = [
        f"{each.prefix} {_measured(each.compute_s, 's')} in {many(each.tasks, 'task')}"
        + f", transfers {each.transfer_s:,.1f} s" * (each.transfer_s >= 0.1)
        for each in usage.slowest[:3]
    ]
    busy, energy_wh = usage.utilization_percent, usage.energy_wh
    found = {
        "GPUs": f"{usage.gpus}, for {usage.gpu_hours:,.3g} GPU hours" if usage.gpus else "",
        "utilisation": "" if busy is None else f"{busy:.0f} % on average",
        "device memory": _memory(
            usage.device_memory_peak_bytes, usage.device_memory_mean_bytes, " on one GPU"
        ),
        "host memory": _memory(
            usage.host_memory_peak_bytes, usage.host_memory_mean_bytes, " of all workers"
        ),
        "energy": "" if energy_wh is None else f"{energy_wh:,.4g} Wh",
        "moved": "; ".join(filter(None, by_way)),
        "idle": idle if usage.idle_s else "",
        "slowest": "; ".join(slowest),
    }
    return {name: text for name, text in found.items() if text}


def idle_text(why: Iterable[tuple[Idle, float]]) -> str:
    """Return reasons with their seconds."""
    return ", ".join(f"{reason} {seconds:,.0f} s" for reason, seconds in why)


def gib(size_bytes: int | None) -> str:
    """Return a size of memory.

    >>> gib(130 * GIB), gib(GIB // 4), gib(None)
    ('130 GiB', '0.25 GiB', '–')
    """
    return MISSING if size_bytes is None else f"{size_bytes / GIB:,.3g} GiB"


def _memory(peak: int | None, mean: int | None, of: str) -> str:
    if peak is None:
        return ""
    return f"{gib(peak)} at most{of}" + ("" if mean is None else f", {gib(mean)} on average")


def device_rows(usage: Usage | None) -> list[dict[str, Any]]:
    """Return a row for each GPU of a run that had several."""
    return [
        {
            "GPU": each.name,
            "memory": gib(each.memory_peak_bytes),
            "on average": gib(each.memory_mean_bytes),
            "utilisation": _with(each.utilization_percent, " %"),
            "energy": _with(each.energy_wh, " Wh"),
            "idle": f"{each.idle_s:,.0f} s",
            "why": idle_text(each.idle_why),
        }
        for each in (usage.devices if usage and len(usage.devices) > 1 else ())
    ]


def _with(value: float | None, unit: str) -> str:
    return MISSING if value is None else f"{value:,.4g}{unit}"


def differences(first: RunStatus, second: RunStatus) -> list[tuple[str, str, str]]:
    """Return the facts of two runs side by side: which they are, what differs, what does not."""
    one, other = _facts(first), _facts(second)
    found = [(name, one.get(name, MISSING), other.get(name, MISSING)) for name in {**one, **other}]
    return [*found[:3], *sorted(found[3:], key=lambda each: each[1] == each[2])]


def _facts(run: RunStatus) -> dict[str, str]:
    """Return the facts of a run by their labels; the first three say which it is."""
    try:
        kept = json.loads(run.result_json or "{}")
        result = {key: json.dumps(value) for key, value in kept.get("result", {}).items()}
        workers = [each["name"] for each in kept.get("workers", ())]
    except (ValueError, LookupError, TypeError, AttributeError):
        result, workers = {"result": run.summary}, []
    took_s = None if run.ended_at is None else run.ended_at - run.started_at
    timings = {f"{stage} took": f"{seconds:,.1f} s" for stage, seconds in run.timings}
    return {
        "run": run.id,
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_at)),
        "preset": run.preset.rpartition("/")[2],
        "state": run.state.value,
        "took": MISSING if took_s is None else f"{took_s:,.1f} s",
        **dict(run.parameters),
        "hosts": run.hosts or "this machine",
        "workers": ", ".join(workers),
        **{f"version of {name}": version for name, version in run.versions},
        "restarts": str(run.restarts),
        **timings,
        **usage_facts(run.usage),
        **result,
        **({"error": run.failure.message} if run.failure else {}),
    }
