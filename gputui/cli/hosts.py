"""Commands on hosts without a cluster: `who` and `claim`, `doctor` and `bootstrap`."""

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from gputui.cli.terminal import ask_here
from gputui.client.head_connection import HeadConnection
from gputui.client.sources import parse_size, parse_span, read_hosts
from gputui.errors import ClusterError, ExitCode, GputuiError, HostError, UsageError, refuse
from gputui.fleet.checks import OTHERS_HIDDEN, Verdict, chosen_devices
from gputui.fleet.claiming import hold
from gputui.fleet.host import ON_THE_WAY, FleetHost
from gputui.fleet.lone_agents import lone_agents
from gputui.fleet.stages import FleetSettings
from gputui.model.hosts import Host
from gputui.model.plain_text import MISSING, aligned, safe, safe_lines
from gputui.model.readings import (
    DeviceReading,
    Note,
    Wanted,
    claim_text,
    is_free,
    used_since,
    users,
)
from gputui.model.snapshot import HostState, HostStatus
from gputui.protocol.connection_file import ConnectionFile, running_clusters
from gputui.protocol.frontend import SnapshotTaken, ToFrontend
from gputui.settings import load_settings
from gputui.tui.rendering.format import age, memory, number, percent
from gputui.tui.rendering.owners import gpu_sums

WATCH_S = 2.0
ANSWER_S = 2.0
"""How long a head may take to answer."""
RELEASED_S = 10.0
"""How long a claim may take to end."""

DOWN = (HostState.RESOLVING, HostState.CONNECTING)
"""The stages that fail for a host that is down: no login was tried, which it could count."""

OTHERS_ONLY = """bootstrap makes other hosts ready; this machine has what gputui is installed with
  gputui bootstrap hosts.txt    or such lines as an argument: 'gpu-a,gpu-b'
  gputui doctor                 says what is missing on this machine"""

Seen = tuple[dict[str, tuple[DeviceReading, ...]], tuple[HostError, ...]]
"""The GPUs of each host that answered, and why the others did not."""
Said = tuple[HeadConnection, dict[str, HostStatus]]
"""A running head, and the newest status of its hosts, by how a person reaches them."""


def fleet_settings() -> FleetSettings:
    """Return how this user's hosts are reached, for a command without a cluster."""
    return FleetSettings(cluster_id="none", **load_settings().keywords())


async def who(hosts: str | None, by: str, only: tuple[str, ...], as_json: bool, watch: bool) -> int:
    """Print every GPU with its users and its claim; 3 where no host answered."""
    read, filters = read_hosts(hosts).hosts, [gpu_filter(word) for word in only]
    told = dict[str, str]()
    async with _looking(read, once=not watch) as look:
        while True:
            (up, failed), now = await look(), time.time()
            _tell([each for each in failed if told.get(each.host) != each.reason])
            told = {each.host: each.reason for each in failed}
            devices = [
                (name, device)
                for name, some in up.items()
                for device in some
                if all(keeps(device, now) for keeps in filters)
            ]
            if as_json:
                rows: list[dict[str, Any]] = [
                    {
                        "host": name,
                        "gpus": [as_object(each) for host, each in devices if host == name],
                    }
                    for name in up
                ]
                rows += [{"host": each.host, "error": each.reason} for each in failed]
                shown = json.dumps(rows, indent=1)
            else:
                table = by_gpu(devices, now) if by == "gpu" else sums(devices, by, now, only)
                shown = "\n".join(aligned(table))
            print(safe_lines(shown), flush=True)
            if not watch:
                if any(each.gpus and each.name in up for each in read) and not any(up.values()):
                    raise ClusterError("no host has a GPU that its gpus= names")
                return int(ExitCode.DONE if up else ExitCode.NO_CLUSTER)
            await asyncio.sleep(WATCH_S)


@contextlib.asynccontextmanager
async def _looking(
    hosts: Sequence[Host], once: bool
) -> AsyncIterator[Callable[[], Awaitable[Seen]]]:
    """Yield a function that returns the newest readings of these hosts, in their order.

    Of those that a running head has ready, that tells; the others are reached, and read `once` or
    all the time. Then one that is down is tried again with each look.
    """
    async with contextlib.AsyncExitStack() as opened:
        asked = await asyncio.gather(*(_asked(each, opened) for each in running_clusters()))
        heads = [each for each in asked if each]
        agents, failures, warned = dict[str, FleetHost](), dict[str, HostError](), set[str]()

        async def look() -> Seen:
            # A head may end, or lose a host, while others are reached.
            while rest := [
                host for host in hosts if host.name not in agents and not _ready(host, heads)
            ]:
                alone = lone_agents(rest, fleet_settings(), ask_here, once=once)
                agents.update({a.name: a for a in await opened.enter_async_context(alone)})
            found, lost = {}, []
            for host in hosts:
                agent, status = agents.get(host.name), _ready(host, heads)
                if agent and agent.state is HostState.READY and _knows_gpus(agent):
                    status = agent.status
                    if host.name not in warned:
                        _warn([agent])
                    warned.add(host.name)
                if status:
                    found[host.name] = chosen_devices(
                        host, status.devices, of_others=not host.slurm_job
                    )
                elif agent:
                    if agent.state not in ON_THE_WAY:
                        failures[host.name] = _failure(agent)
                    lost.append(failures[host.name])
                    if not once and agent.status.failed_stage in DOWN:
                        agent.retry()
            return found, tuple(lost)

        yield look


def _ready(host: Host, heads: Iterable[Said]) -> HostStatus | None:
    """Return the status of a host at a running head that has it ready; None without one."""
    for head, said in heads:
        status = said.get(host.by_hand)
        if status and status.state is HostState.READY and not head.why_gone:
            return status
    return None


async def _asked(cluster: ConnectionFile, opened: contextlib.AsyncExitStack) -> Said | None:
    """Follow what a head says of its hosts until `opened` is closed; None without an answer."""
    said: dict[str, HostStatus] = {}

    def heard(message: ToFrontend) -> None:
        if isinstance(message, SnapshotTaken):
            said.clear()
            said.update({host.by_hand: host for host in message.snapshot.hosts})

    with contextlib.suppress(GputuiError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            opening = HeadConnection.open(cluster.socket, frontend="command", snapshots=True)
            connection = await opened.enter_async_context(await opening)
            connection.hear(heard)
            await connection.received(SnapshotTaken)
            return connection, said
    return None


def _warn(agents: Iterable[FleetHost]) -> None:
    """Print the warnings of hosts that are ready."""
    for agent in agents:
        if agent.facts is None or agent.state is not HostState.READY or not _knows_gpus(agent):
            continue
        found = [*agent.facts.warnings, *[OTHERS_HIDDEN] * agent.facts.others_hidden]
        if agent.clock and agent.clock.verdict is Verdict.DOUBTFUL:
            found.append(agent.clock.text)
        for each in [agent.claims.no_gpu] if agent.claims.no_gpu else found:
            print(safe(f"gputui: {agent.name}: {each}"), file=sys.stderr)


def _knows_gpus(host: FleetHost) -> bool:
    """Return whether its driver has answered, or nobody asks for it."""
    answered = host.facts is not None and host.facts.gpus_known
    return bool(host.claims.devices or answered or not host.claims.no_gpu)


def _failure(host: FleetHost) -> HostError:
    """Return why a host cannot be used now."""
    status = host.status
    reason, tail = status.reason or host.claims.no_gpu, status.stderr_tail
    return HostError(host.name, host.state, reason, hint=status.hint, stderr_tail=tail)


def _tell(failed: Iterable[HostError]) -> None:
    for error in failed:
        print(f"gputui: {safe_lines(str(error))}", file=sys.stderr)


def as_object(device: DeviceReading) -> dict[str, Any]:
    """Return one GPU of `who --json`."""
    return {
        "gpu": device.label,
        "uuid": device.uuid,
        "model": device.name,
        "free": is_free(device),
        "lost": device.lost,
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
        "idle_since": device.idle_since,
    }


def by_gpu(devices: Iterable[tuple[str, DeviceReading]], now: float) -> list[list[str]]:
    """Return a row for each GPU, under a head."""
    rows = [["host", "gpu", "model", "util", "memory", "user", "since", "idle", "claim"]]
    for host, device in devices:
        since = used_since(device)
        rows.append(
            [
                host,
                device.label,
                device.name,
                percent(device.utilization_percent),
                memory(device.memory_used_bytes, device.memory_total_bytes),
                ", ".join(users(device)) or _nobody(device),
                MISSING if since is None else age(now - since),
                MISSING if device.idle_since is None else age(now - device.idle_since),
                claim_text(device, now) or MISSING,
            ]
        )
    return rows


def _nobody(device: DeviceReading) -> str:
    """Describe a GPU that has no user."""
    if device.lost:
        return "lost"
    return "free" if is_free(device) else MISSING


def sums(
    devices: Iterable[tuple[str, DeviceReading]], by: str, now: float, only: Iterable[str] = ()
) -> list[list[str]]:
    """Return a row for each user or host, under a head: GPUs, memory, power, and idle hours."""
    meant = {word.removeprefix(f"{by}:") for word in only if word.startswith(f"{by}:")}
    rows = [[by, "gpus", "free", "memory", "power", "idle"]]
    found = gpu_sums(devices, now, by_host=by == "host")
    for each in (each for each in found if not meant or each.name in meant):
        free = sum(is_free(device) for _, device in each.devices)
        counts = [str(len(each.devices)), str(free), memory(*each.memory_bytes)]
        rows.append(
            [each.name, *counts, f"{number(each.power_w)} W", f"{each.idle_s / 3600:.1f} h"]
        )
    return rows


async def claim(
    hosts: str | None,
    gpus: int | None,
    span: str | None,
    note: str,
    wait: str | None,
    memory_free: str,
    pid: int | None,
    listed: bool,
    release: bool,
) -> None:
    """Hold GPUs until it is interrupted, or for a span; 3 where they cannot be had.

    Or list one's own claims, or release those that such commands hold.
    """
    refuse(
        (sum(map(bool, (pid, listed, release))) > 1, "give one of --pid, --list and --release"),
        (
            (pid or listed or release) and (gpus or wait or memory_free),
            "-n, --wait and --memory-free: for GPUs that are free; leave them out",
        ),
        (
            (listed or release) and (span or note),
            "--for and --note: for GPUs that are to be claimed; leave them out",
        ),
    )
    read = read_hosts(hosts)
    refuse(
        (pid and len(read.hosts) > 1, "--pid: a process is on one host; name that one"),
        (
            not (gpus or pid or listed or release) and any(host.free_gpus for host in read.hosts),
            "gpus=free:N: give -n, the number in all",
        ),
    )
    hold_s = None if span is None else parse_span(span)
    text = note or (f"process {pid}" if pid else "")
    wanted = Wanted(gpus or 1, 0, parse_size("--memory-free", memory_free), parse_span(wait or "0"))

    def shown() -> Note:
        now = time.time()
        return Note(text, now, None if hold_s is None else now + hold_s, only_held=True)

    async with lone_agents(read.hosts, fleet_settings(), ask_here) as found:
        up = [each for each in found if each.state is HostState.READY]
        _tell(_failure(each) for each in found if each not in up)
        if not up:
            raise ClusterError("no host answered")
        _warn(up)
        if listed or release:
            await _own_claims(up, release)
            return
        if pid:
            held = [await up[0].claims.claim_for(pid, shown())]
        else:
            held = await hold([host.claims for host in up], wanted, shown, _say())
        for each in held:
            for device in each.devices:
                print(safe(f"{each.host.name}  {device.label}  {device.uuid}"), flush=True)
        until = "ctrl+C" if pid is None else f"process {pid} ends, or ctrl+C"
        how = f"until {until}" if hold_s is None else f"for {span}"
        print(f"gputui: held {how}", file=sys.stderr)
        end = time.monotonic() + (math.inf if hold_s is None else hold_s)
        while (left_s := end - time.monotonic()) > 0:
            for each in held:
                if each.host.over or not each.lasts:
                    why = each.host.over or "its agent ended"
                    raise ClusterError(f"{each.host.name}: {why}; its GPUs are not held")
            for host in up:
                if host.lease_over and host.claims.taken:
                    raise ClusterError(f"{host.name}: {host.status.reason}; its GPUs are not held")
            if up[0].claims.over is not None:
                break
            await asyncio.sleep(min(1.0, left_s))


def _say() -> Callable[[str], None]:
    """Return a function that prints why one waits, when that has changed."""
    last = ""

    def say(why: str) -> None:
        nonlocal last
        first = why.partition("\n")[0]
        if first != last:
            last = first
            print(f"gputui: waiting: {safe_lines(why)}", file=sys.stderr, flush=True)

    return say


async def _own_claims(up: Iterable[FleetHost], release: bool) -> None:
    """Print this user's claims; release those that only a `gputui claim` holds."""
    for host in up:
        own = [each for each in host.claims.devices if each.claim and each.claim.own]
        if release:  # what holds one of these may hold others, which it ends with
            pids = {each.claim.pid for each in own if each.claim}
            own = [e for e in host.status.devices if e.claim and e.claim.pid in pids]
        for device in own:
            words = [host.name, device.label, claim_text(device, time.time())]
            assert device.claim
            if release and not device.claim.note.only_held:
                words.append(f"not known as a `gputui claim`: end process {device.claim.pid}")
            print(safe("  ".join(words)), flush=True)
        ending = {e.uuid: e.claim.pid for e in own if e.claim and e.claim.note.only_held}
        if release and ending:
            host.claims.end(ending)
            until = time.monotonic() + RELEASED_S
            # Who waits may have them at once.
            while any(
                each.claim and each.claim.own and each.claim.pid == ending.get(each.uuid)
                for each in host.claims.devices
            ):
                if time.monotonic() > until:
                    raise ClusterError(f"{host.name}: not released within {RELEASED_S:g} s")
                await asyncio.sleep(0.1)


def gpu_filter(word: str) -> Callable[[DeviceReading, float], bool]:
    """Return whether a GPU, at a moment, is one that a filter means; raises UsageError.

    >>> gpu_filter("idle>1h")(DeviceReading("GPU-1", "0", "H100", idle_since=0.0), 3601.0)
    True
    """
    if word == "free":
        return lambda device, now: is_free(device)
    if word.startswith("user:") and word != "user:":
        return lambda device, now: word.removeprefix("user:") in users(device)
    if word.startswith("idle>"):
        least_s = parse_span(word.removeprefix("idle>"))
        return lambda device, now: (
            device.idle_since is not None and now - device.idle_since > least_s
        )
    raise UsageError(f"--only {word}: write free, user:NAME or 'idle>1h'")


async def doctor(hosts: str | None) -> int:
    """Print what every check says of every host; 3 where one of them cannot be used."""
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
    wheels: str | None,
    index: str,
    host_pip_conf: bool,
    build: bool,
) -> int:
    """Describe the changes, ask for confirmation, carry them out and print the outcome.

    Raises UsageError where no host is named but this machine, on which gputui is installed, and
    where no user can say yes.
    """
    from gputui.fleet.deploy.bootstrap import bootstrap as make_ready
    from gputui.fleet.deploy.bootstrap import describe, read_source

    folder = Path(wheels) if wheels else None
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
        ready = f"{host.name}: ready: {outcome}"
        click.echo(safe_lines(ready if isinstance(outcome, str) else str(outcome)))
    failed = not all(isinstance(outcome, str) for outcome in outcomes)
    return int(ExitCode.NO_CLUSTER if failed else ExitCode.DONE)
