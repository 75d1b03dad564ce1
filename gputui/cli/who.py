"""`who` and `claim`: whose GPU it is, and holding some of them."""

import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gputui.cli.asking import ask_here
from gputui.cli.host_commands import fleet_settings
from gputui.client.sources import read_hosts
from gputui.errors import ClusterError, ExitCode, HostError, UsageError
from gputui.fleet.claiming import hold
from gputui.fleet.deploy.start_agent import LoneAgent, lone_agents
from gputui.model.plain_text import aligned, safe
from gputui.model.readings import DeviceReading, Note, is_free, users
from gputui.tui.rendering.format import age, memory, number, percent

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
WATCH_S = 2.0


def parse_span(text: str) -> float:
    """Return a span of time in seconds; raises UsageError.

    >>> parse_span("90"), parse_span("2h"), parse_span("1h30m")
    (90.0, 7200.0, 5400.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise UsageError(f"'{text}' is not a span of time: write 90s, 30m, 2h or 1d")
    return float(sum(float(value) * UNITS_S[unit or "s"] for value, unit in parts))


def who(hosts: str | None, by: str, as_json: bool, watch: bool) -> int:
    """Print every GPU with its users and its claim; 3 where no host answered."""
    return asyncio.run(_who(hosts, by, as_json, watch))


async def _who(given: str | None, by: str, as_json: bool, watch: bool) -> int:
    async with lone_agents(read_hosts(given).hosts, fleet_settings(), ask_here) as found:
        up, failed = _apart(found)
        for host in up:
            if not host.devices:
                why = "; ".join(host.facts.warnings) or "none that may be used"
                print(f"gputui: {host.host.name}: no GPU: {safe(why)}", file=sys.stderr)
        while True:
            print(_shown(up, failed, by, as_json), flush=True)
            if not watch:
                return int(ExitCode.DONE if up else ExitCode.NO_CLUSTER)
            await asyncio.sleep(WATCH_S)


def _apart(
    found: Iterable[LoneAgent | HostError],
) -> tuple[tuple[LoneAgent, ...], tuple[HostError, ...]]:
    """Return the hosts that answered, and why the others did not, which is printed."""
    found = tuple(found)
    failed = tuple(each for each in found if isinstance(each, HostError))
    for error in failed:
        print(f"gputui: {safe(str(error))}", file=sys.stderr)
    return tuple(each for each in found if isinstance(each, LoneAgent)), failed


def _shown(up: tuple[LoneAgent, ...], failed: tuple[HostError, ...], by: str, as_json: bool) -> str:
    if as_json:
        rows = [{"host": host.host.name, "gpus": [*map(as_object, host.devices)]} for host in up]
        return json.dumps(
            [*rows, *({"host": each.host, "error": each.reason} for each in failed)], indent=1
        )
    devices = [(host.host.name, device) for host in up for device in host.devices]
    cells = by_user(devices) if by == "user" else by_gpu(devices, time.time())
    return "\n".join(aligned(cells))


def as_object(device: DeviceReading) -> dict[str, Any]:
    """Return one GPU of `who --json`."""
    return {
        "gpu": device.label,
        "uuid": device.uuid,
        "model": device.name,
        "free": is_free(device),
        "utilization_percent": device.utilization_percent,
        "memory_used_bytes": device.memory_used_bytes,
        "memory_total_bytes": device.memory_total_bytes,
        "power_w": device.power_w,
        "processes": [
            {key: value for key, value in asdict(each).items() if key != "owner"}
            for each in device.processes
        ],
        "claim": device.claim
        and {"pid": device.claim.pid, "user": device.claim.user} | asdict(device.claim.note),
        "waiting": list(device.waiting),
    }


def by_gpu(devices: Iterable[tuple[str, DeviceReading]], now: float) -> list[list[str]]:
    """Return a row for each GPU, under a head."""
    rows = [["host", "gpu", "model", "util", "memory", "user", "since", "claim"]]
    for host, device in devices:
        starts = [each.since for each in device.processes if each.since]
        if device.claim and device.claim.note.since:
            starts.append(device.claim.note.since)
        rows.append(
            [
                host,
                device.label,
                device.name,
                percent(device.utilization_percent),
                memory(device.memory_used_bytes, device.memory_total_bytes),
                ", ".join(users(device)) or ("free" if is_free(device) else "–"),
                age(now - min(starts)) if starts else "–",
                _claim(device, now),
            ]
        )
    return rows


def _claim(device: DeviceReading, now: float) -> str:
    """Describe a claim: the note, the promised end, and who waits."""
    parts = []
    if device.claim:
        note = device.claim.note
        parts += [device.claim.user or "held, holder unknown"]
        parts += [f"({note.person}, unverified)"] * bool(note.person)
        parts += [note.text] * bool(note.text)
        if note.until is not None:
            left = note.until - now
            parts.append(f"for {age(left)} more" if left > 0 else f"over by {age(-left)}")
    if device.waiting:
        parts.append(f"waiting: {', '.join(device.waiting)}")
    return safe(" · ".join(parts)) or "–"


def by_user(devices: Iterable[tuple[str, DeviceReading]]) -> list[list[str]]:
    """Return a row for each user, under a head: GPUs, memory and power that they have."""
    sums: dict[str, list[DeviceReading]] = defaultdict(list)
    for _, device in devices:
        for user in users(device):
            sums[user].append(device)
    rows = [["user", "gpus", "memory", "power", "idle"]]
    for user, some in sorted(sums.items(), key=lambda each: (-len(each[1]), each[0])):
        used = sum(device.memory_used_bytes or 0 for device in some)
        total = sum(device.memory_total_bytes or 0 for device in some)
        power = sum(device.power_w or 0.0 for device in some)
        idle = sum(device.utilization_percent == 0 for device in some)
        rows.append([user, str(len(some)), memory(used, total), f"{number(power)} W", str(idle)])
    return rows


def claim(
    hosts: str | None, gpus: int, span: str | None, note: str, wait: str | None, memory_free: str
) -> int:
    """Hold GPUs until it is interrupted, or for a span; 3 where they cannot be had."""
    from dask.utils import parse_bytes

    hold_s = parse_span(span) if span else None
    try:
        memory_bytes = int(parse_bytes(memory_free)) if memory_free else 0
    except ValueError as error:
        raise UsageError(f"--memory-free {memory_free}: write 70GiB") from error
    return asyncio.run(
        _claim_and_hold(hosts, gpus, hold_s, note, parse_span(wait) if wait else 0.0, memory_bytes)
    )


async def _claim_and_hold(
    given: str | None, gpus: int, hold_s: float | None, text: str, wait_s: float, memory_bytes: int
) -> int:
    now = time.time()
    note = Note(text, since=now, until=None if hold_s is None else now + hold_s)
    async with lone_agents(read_hosts(given).hosts, fleet_settings(), ask_here) as found:
        up, _ = _apart(found)
        if not up:
            raise ClusterError("no host answered")
        held = await hold(up, gpus, note, wait_s, memory_bytes)
        for name, device in held:
            print(safe(f"{name}  {device.label}  {device.uuid}"), flush=True)
        print(
            "gputui: held until ctrl+C" if hold_s is None else f"gputui: held for {age(hold_s)}",
            file=sys.stderr,
        )
        end = asyncio.get_running_loop().time() + (hold_s if hold_s is not None else float("inf"))
        while asyncio.get_running_loop().time() < end:
            if lost := [host for host in up if host.lost]:
                raise ClusterError(f"{lost[0].host.name}: {lost[0].lost}; its GPUs are not held")
            await asyncio.sleep(min(1.0, max(0.0, end - asyncio.get_running_loop().time())))
    return int(ExitCode.DONE)
