"""A run → facts, each a text under a label, and what differs between two runs. Pure.

`gputui runs show`, `gputui runs diff` and the screen show these.
"""

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from gputui.model.snapshot import RunStatus
from gputui.model.usage import Idle, Usage

MISSING = "–"
GIB = 2**30


class Difference(NamedTuple):
    """One fact of two runs."""

    name: str
    first: str
    second: str

    @property
    def differs(self) -> bool:
        """Whether the two are not alike."""
        return self.first != self.second


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
    between = ", ".join(_gigabytes(way, size) for way, size in usage.moved if size)
    by_way = [f"{between} between workers" if between else ""]
    by_way += [_gigabytes(way, size) for way, size in measured if size]
    idle = f"{usage.idle_s:,.0f} s of all GPUs together: {idle_text(usage.idle_why)}"
    slowest = [
        f"{each.prefix} {each.compute_s:,.1f} s in {each.tasks:,} tasks"
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


def _gigabytes(way: str, size_bytes: int) -> str:
    return f"{way} {size_bytes / 1e9:,.2f} GB"


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


def differences(first: RunStatus, second: RunStatus) -> list[Difference]:
    """Return the facts of two runs side by side: which they are, what differs, what does not."""
    one, other = _facts(first), _facts(second)
    found = [
        Difference(name, one.get(name, MISSING), other.get(name, MISSING))
        for name in {**one, **other}
    ]
    which, rest = found[:3], found[3:]
    return [*which, *sorted(rest, key=lambda each: not each.differs)]


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
