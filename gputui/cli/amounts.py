"""Spans of time, sizes and numbers of GPUs, as options write them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from gputui.client.sources import HostsInput
from gputui.errors import UsageError
from gputui.model.hosts import bytes_of
from gputui.model.readings import DeviceReading, Wanted, is_free, users

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_span(text: str) -> float:
    """Return a span of time in seconds; raises UsageError.

    >>> parse_span("90"), parse_span("2h"), parse_span("1h30m")
    (90.0, 7200.0, 5400.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise UsageError(f"'{text}' is not a span of time: write 90s, 30m, 2h or 1d")
    return float(sum(float(value) * UNITS_S[unit or "s"] for value, unit in parts))


def parse_size(option: str, text: str) -> int:
    """Return a size in bytes, 0 for none; raises UsageError."""
    try:
        return bytes_of(text) if text else 0
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def check_per_host(gpus: int, per_host: int | None) -> None:
    """Raise UsageError where so many of each host never add up to the number in all."""
    if per_host and (over := gpus % per_host):
        multiple = gpus - over + per_host
        hint = f"write --gpus {multiple}, or leave it out"
        raise UsageError(f"--gpus-per-host: --gpus {gpus} is no multiple of {per_host}; {hint}")


def wanted_gpus(hosts: HostsInput, options: Mapping[str, Any]) -> Wanted:
    """Return the free GPUs that a cluster of these hosts is to take; raises UsageError."""
    count, span, memory_free = options["gpus"], options["wait"], options["memory_free"]
    if not count:
        if options["gpus_per_host"]:
            raise UsageError("--gpus-per-host: for --gpus N, the number in all")
        if (span or memory_free) and not any(host.free_gpus for host in hosts.hosts):
            option = "--wait" if span else "--memory-free"
            raise UsageError(f"{option}: for --gpus N, or gpus=free:N in HOSTS")
    else:
        check_per_host(count, options["gpus_per_host"])
    return Wanted(
        count or 0,
        options["gpus_per_host"] or 0,
        parse_size("--memory-free", memory_free),
        parse_span(span or "0"),
    )


def gpu_filter(word: str) -> Callable[[DeviceReading, float], bool]:
    """Return whether a GPU, at a moment, is one that a filter means; raises UsageError.

    >>> gpu_filter("idle>1h")(DeviceReading("GPU-1", "0", "H100", idle_since=0.0), 3601.0)
    True
    """
    if word == "free":
        return lambda device, now: is_free(device)
    if word.startswith("user:"):
        return lambda device, now: word.removeprefix("user:") in users(device)
    if word.startswith("idle>"):
        least_s = parse_span(word.removeprefix("idle>"))
        return lambda device, now: (
            device.idle_since is not None and now - device.idle_since > least_s
        )
    raise UsageError(f"--only {word}: write free, user:NAME or 'idle>1h'")
