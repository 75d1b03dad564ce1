"""Commands on hosts without a cluster: `doctor`, `bootstrap`, `who` and `claim`."""

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from gputui.cli.amounts import parse_size, parse_span
from gputui.cli.terminal import ask_here
from gputui.client.sources import read_hosts
from gputui.errors import ClusterError, ExitCode, HostError, UsageError
from gputui.fleet.claiming import hold
from gputui.fleet.lone_agents import LoneAgent, lone_agents
from gputui.fleet.stages import FleetSettings
from gputui.model.claim_text import claim_text, used_since
from gputui.model.plain_text import aligned, safe, safe_lines
from gputui.model.readings import DeviceReading, Note, Wanted, is_free, users
from gputui.settings import load_settings
from gputui.tui.rendering.format import age, memory, number, percent
from gputui.tui.rendering.owners import by_user as sums_by_user

OTHERS_ONLY = """bootstrap makes other hosts ready; this machine has what gputui is installed with
  gputui bootstrap hosts.txt    or such lines as an argument: 'gpu-a,gpu-b'
  gputui doctor                 says what is missing on this machine"""
WATCH_S = 2.0


def fleet_settings() -> FleetSettings:
    """Return how this user's hosts are reached, for a command without a cluster."""
    return FleetSettings(cluster_id="none", **load_settings().keywords())


async def doctor(hosts: str | None) -> int:
    """Print what every check says of every host; 3 where one of them cannot be used."""
    from gputui.fleet.checks import Verdict
    from gputui.fleet.doctor import diagnose, report

    settings = replace(fleet_settings(), cpu_fallback=hosts is None)
    found = await diagnose(read_hosts(hosts).hosts, settings, ask_here)
    print(report(found))
    bad = any(finding.verdict is Verdict.BAD for finding in found)
    return int(ExitCode.NO_CLUSTER if bad else ExitCode.DONE)


async def bootstrap(
    hosts: str | None,
    yes: bool,
    lock: str | None,
    write_lock: str | None,
    wheels: str | None,
    index: str,
    host_pip_conf: bool,
    build: bool,
) -> int:
    """Describe the changes, ask for confirmation, carry them out and print the outcome.

    With `write_lock`: write a lock file of the packages, and stop.

    Raises UsageError where no host is named but this machine, on which gputui is installed, and
    where no user can say yes.
    """
    from gputui.fleet.deploy.bootstrap import bootstrap as make_ready
    from gputui.fleet.deploy.bootstrap import describe, read_source
    from gputui.fleet.deploy.bootstrap import write_lock as write

    folder = Path(wheels) if wheels else None
    if write_lock and (hosts or yes or lock or host_pip_conf or build):
        raise UsageError("--write-lock only writes; then: gputui bootstrap HOSTS --lock FILE")
    if write_lock:
        count = write(Path(write_lock), read_source(None, folder, index, False))
        hint = f"gputui bootstrap HOSTS --lock {write_lock}"
        click.echo(f"{write_lock}: {count} packages; {hint}", err=True)
        return int(ExitCode.DONE)
    settings = fleet_settings()
    given = [host for host in read_hosts(hosts).hosts if not host.is_local]
    if not given:
        raise UsageError(OTHERS_ONLY)
    source = read_source(Path(lock) if lock else None, folder, index, host_pip_conf, build)
    click.echo(describe(given, settings, source), err=True)
    if not (yes or sys.stdin.isatty()):
        raise UsageError("bootstrap changes hosts, and cannot ask without a terminal: add --yes")
    if not (yes or click.confirm("Go on?", err=True)):
        click.echo("gputui: nothing was changed", err=True)
        return int(ExitCode.INTERRUPTED)

    def tell(host: str, line: str) -> None:
        click.echo(f"{host}: {safe(line)}", err=True)

    outcomes = await make_ready(given, settings, tell=tell, ask=ask_here, source=source)
    for host, outcome in zip(given, outcomes, strict=True):
        if isinstance(outcome, str):
            click.echo(f"{host.name}: ready: {safe(outcome)}")
            continue
        click.echo(f"{host.name}: failed: {safe(outcome.reason)}")
        if outcome.hint:
            click.echo(f"  {safe(outcome.hint)}")
    failed = not all(isinstance(outcome, str) for outcome in outcomes)
    return int(ExitCode.NO_CLUSTER if failed else ExitCode.DONE)


async def who(hosts: str | None, by: str, as_json: bool, watch: bool) -> int:
    """Print every GPU with its users and its claim; 3 where no host answered."""
    async with lone_agents(read_hosts(hosts).hosts, fleet_settings(), ask_here) as found:
        up, failed = _apart(found)
        for host in up:
            if not host.claims.devices:
                why = "; ".join(host.facts.warnings) or "none that may be used"
                print(f"gputui: {host.host.name}: no GPU: {safe(why)}", file=sys.stderr)
        while True:
            claims = [host.claims for host in up]
            devices = [(each.name, device) for each in claims for device in each.devices]
            if as_json:
                rows = [{"host": c.name, "gpus": [*map(as_object, c.devices)]} for c in claims]
                errors = [{"host": each.host, "error": each.reason} for each in failed]
                shown = json.dumps([*rows, *errors], indent=1)
            else:
                table = by_user(devices) if by == "user" else by_gpu(devices, time.time())
                shown = "\n".join(aligned(table))
            print(safe_lines(shown), flush=True)
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
        since = used_since(device)
        rows.append(
            [
                host,
                device.label,
                device.name,
                percent(device.utilization_percent),
                memory(device.memory_used_bytes, device.memory_total_bytes),
                ", ".join(users(device)) or ("free" if is_free(device) else "–"),
                "–" if since is None else age(now - since),
                claim_text(device, now) or "–",
            ]
        )
    return rows


def by_user(devices: Iterable[tuple[str, DeviceReading]]) -> list[list[str]]:
    """Return a row for each user, under a head: GPUs, memory and power that they have."""
    rows = [["user", "gpus", "memory", "power", "idle"]]
    for each in sums_by_user(devices, time.time()):
        idle = sum(device.utilization_percent == 0 for _, device in each.devices)
        used, total = each.memory_bytes
        row = [memory(used, total), f"{number(each.power_w)} W", str(idle)]
        rows.append([each.name, str(len(each.devices)), *row])
    return rows


async def claim(
    hosts: str | None,
    gpus: int | None,
    span: str | None,
    note: str,
    wait: str | None,
    memory_free: str,
) -> int:
    """Hold GPUs until it is interrupted, or for a span; 3 where they cannot be had."""
    hold_s = parse_span(span) if span else None
    memory_bytes = parse_size("--memory-free", memory_free)
    wait_s = parse_span(wait) if wait else 0.0
    now = time.time()
    shown = Note(note, since=now, until=None if hold_s is None else now + hold_s)
    async with lone_agents(read_hosts(hosts).hosts, fleet_settings(), ask_here) as found:
        up, _ = _apart(found)
        if not up:
            raise ClusterError("no host answered")
        wanted = Wanted(gpus or 1, memory_bytes=memory_bytes, wait_s=wait_s)
        held = await hold([host.claims for host in up], wanted, shown)
        for host, devices in held:
            for device in devices:
                print(safe(f"{host.name}  {device.label}  {device.uuid}"), flush=True)
        print(
            "gputui: held until ctrl+C" if hold_s is None else f"gputui: held for {age(hold_s)}",
            file=sys.stderr,
        )
        end = time.monotonic() + (math.inf if hold_s is None else hold_s)
        while (left_s := end - time.monotonic()) > 0:
            if lost := [host for host, _ in held if host.lost]:
                raise ClusterError(f"{lost[0].name}: {lost[0].lost}; its GPUs are not held")
            await asyncio.sleep(min(1.0, left_s))
    return int(ExitCode.DONE)
