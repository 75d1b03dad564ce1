"""Find what is wrong with hosts: every check on each, by the same path that a cluster takes.

All hosts are reached at once; an agent is started on each, which reports its facts, tries a port
here, and ends.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from gputui.errors import HostError, ProtocolError
from gputui.fleet import checks, reachability
from gputui.fleet.addresses import bracketed, is_loopback, same_family
from gputui.fleet.agent_channel import AgentChannel
from gputui.fleet.deploy.start_agent import AgentOpener, OpenedAgent, Places
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.stages import Ask, Stages
from gputui.folders import LONGEST_SOCKET_NAME, MAX_SOCKET_PATH_BYTES
from gputui.model.hosts import Host
from gputui.model.plain_text import safe
from gputui.model.snapshot import HostState
from gputui.protocol import VERSION
from gputui.protocol.agent import (
    Configure,
    Facts,
    Listen,
    Listening,
    Reach,
    Reached,
    Shutdown,
)

FACTS_S = 15.0
PORT_S = 5.0
ENDING_S = 5.0

Answer = TypeVar("Answer", Facts, Listening, Reached)
DISK_NEEDED_BYTES = 5 * 2**30
"""With less, a host whose workers spill is soon full."""
SLOW_SHELL_S = 5.0
"""With more, pyenv or a module system waits for something."""
MAX_TMPDIR_BYTES = MAX_SOCKET_PATH_BYTES - len(f"/gputui-4294967295{LONGEST_SOCKET_NAME}")

STAGE_CHECKS = (
    (HostState.RESOLVING, "resolve"),
    (HostState.CONNECTING, "connect"),
    (HostState.AUTHENTICATING, "login"),
    (HostState.PROBING, "python"),
)
"""The check that each stage of reaching a host is."""


class Verdict(StrEnum):
    """The outcome of a check."""

    GOOD = "✓"
    DOUBTFUL = "!"
    BAD = "✗"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check on one host."""

    host: str
    check: str
    """resolve, connect, login, python, versions, gpus, cupy, rapids, warning, disk, clock, shell,
    cache, sockets, port, workers, address, sessions or home."""
    verdict: Verdict
    text: str = ""
    hint: str = ""


async def diagnose(
    hosts: Iterable[Host], settings: FleetSettings, ask: Ask, shared: AgentOpener | None = None
) -> tuple[Finding, ...]:
    """Return the findings on every host, in the order of the hosts."""
    settings = replace(settings, cluster_id=f"doctor-{secrets.token_hex(4)}")
    shared = shared or AgentOpener(settings)
    hosts, opened = tuple(hosts), dict[str, OpenedAgent]()
    try:
        found = await asyncio.gather(
            *(_diagnose_one(host, settings, shared, ask, opened) for host in hosts)
        )
        ways = await _try_ways([(host, opened[host.name]) for host in hosts if host.name in opened])
    finally:
        await asyncio.shield(asyncio.gather(*(end(each.channel) for each in opened.values())))
        await shared.close()
    came_up = {host.name: opened[host.name] for host in hosts if host.name in opened}
    homes = {name: each.places.home for name, each in came_up.items()}
    addresses = {name: each.far_address for name, each in came_up.items()}
    together = (*families(addresses), *shared_homes(homes))
    return (*(finding for one in found for finding in one), *together, *ways)


async def _diagnose_one(
    host: Host,
    settings: FleetSettings,
    shared: AgentOpener,
    ask: Ask,
    came_up: dict[str, OpenedAgent],
) -> tuple[Finding, ...]:
    """Return the findings on one host, up to the one that keeps it from the rest."""
    stages = Stages(host.name, settings.stage_timeout_s, entered=lambda state, text: None, ask=ask)
    try:
        opened = await shared.open(host, stages)
    except HostError as error:
        return tuple(unreached(host, error))
    came_up[host.name] = opened
    try:
        found = await _examine(host, settings, opened)
        return (*found, *sessions(host, stages.dropped))
    except (ProtocolError, TimeoutError, EOFError) as error:
        words = str(error) or "its agent did not answer"
        return (Finding(host.name, "agent", Verdict.BAD, words),)


async def _examine(host: Host, settings: FleetSettings, opened: OpenedAgent) -> tuple[Finding, ...]:
    """Return the findings on a host whose agent runs."""
    opened.channel.send(without_workers(host, settings))
    facts = await answer(opened.channel, Facts, FACTS_S)
    found = [*reached(host, facts, opened.far_address)]
    found += judged(host, facts, settings)
    if opened.clock_ahead_s is not None:
        found.append(clock(host, opened.clock_ahead_s))
    found += shell(host, opened.shell_s)
    found += folders(host, opened.places)
    found.append(port(host, await _try_port(settings, opened)))
    return tuple(found)


def without_workers(host: Host, settings: FleetSettings) -> Configure:
    """Return the first message to an agent that is to start no worker."""
    return Configure(
        version=VERSION,
        cluster_id=settings.cluster_id,
        host=host.name,
        lease_s=settings.lease_s,
        telemetry_interval_s=settings.telemetry_interval_s,
        env=host.env,
        only_examined=True,
    )


async def _try_port(settings: FleetSettings, opened: OpenedAgent) -> Reached:
    """Have the host connect to a port here, where the scheduler would listen."""
    address = settings.scheduler_host or opened.local_address
    try:
        listener = await asyncio.start_server(_hang_up, address, settings.scheduler_port)
    except OSError as error:
        return Reached(address, settings.scheduler_port, f"not an address here: {error.strerror}")
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        opened.channel.send(Reach(address, port, PORT_S))
        return await answer(opened.channel, Reached, PORT_S * 2)


async def _try_ways(came_up: list[tuple[Host, OpenedAgent]]) -> list[Finding]:
    """Return the ways that are closed between this machine and workers, and between hosts."""
    remote = [(host, each) for host, each in came_up if not is_loopback(each.far_address)]
    addresses = {
        host.name: host.listen
        or (remote[0][1].local_address if is_loopback(each.far_address) else each.far_address)
        for host, each in (came_up if remote else [])
    }
    ends = [(host, each) for host, each in came_up if host.name in addresses]
    opened = await asyncio.gather(
        *(_open_port(each.channel, addresses[host.name]) for host, each in ends)
    )
    ports = {host.name: port for (host, _), port in zip(ends, opened, strict=True) if port}
    tried = await asyncio.gather(
        *(_from_here(host, each, addresses, ports) for host, each in ends),
        *(_from_host(host, each, addresses, ports) for host, each in ends),
    )
    return [Finding(*each, reachability.HINT) for found in tried for each in found]


async def _open_port(channel: AgentChannel, address: str) -> int:
    """Have a host open a port; 0 where it cannot, or does not answer."""
    channel.send(Listen(address))
    try:
        return (await answer(channel, Listening, PORT_S)).port
    except (ProtocolError, TimeoutError, EOFError):
        return 0


async def _from_here(
    host: Host, opened: OpenedAgent, addresses: Mapping[str, str], ports: Mapping[str, int]
) -> list[tuple[str, str, Verdict, str]]:
    """Try the port of a host from this machine."""
    if (port := ports.get(host.name)) is None:
        return []
    address = addresses[host.name]
    error = await reachability.connect_error(address, port)
    words = reachability.closed("this machine", opened.local_address, host.name, address, error)
    return [(host.name, "workers", Verdict.BAD, words)] if error else []


async def _from_host(
    host: Host, opened: OpenedAgent, addresses: Mapping[str, str], ports: Mapping[str, int]
) -> list[tuple[str, str, Verdict, str]]:
    """Try the ports of other hosts from one host, all at once."""
    others = {addresses[name]: name for name in ports if name != host.name}
    for address, name in others.items():
        opened.channel.send(Reach(address, ports[name], reachability.CONNECT_S))
    closed = []
    with contextlib.suppress(ProtocolError, TimeoutError, EOFError):
        for _ in others:
            reached = await answer(opened.channel, Reached, reachability.ANSWER_S)
            if reached.error and (name := others.get(reached.host, "")):
                near, far = addresses[host.name], reached.host
                words = reachability.closed(host.name, near, name, far, reached.error)
                closed.append((host.name, "workers", Verdict.BAD, words))
    return closed


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def answer(channel: AgentChannel, kind: type[Answer], bound_s: float) -> Answer:
    """Return the next message of a kind; raises TimeoutError, and EOFError at the end."""
    async with asyncio.timeout(bound_s):
        while (message := await channel.receive()) is not None:
            if isinstance(message, kind):
                return message
    raise EOFError("; ".join(("its agent ended", *channel.last_log_lines)))


async def end(channel: AgentChannel) -> None:
    """End the agent, and wait until it has."""
    channel.send(Shutdown(0.0))
    try:
        async with asyncio.timeout(ENDING_S):
            while await channel.receive() is not None:
                continue
    except (TimeoutError, ProtocolError):
        return
    finally:
        await channel.close()


def report(findings: Iterable[Finding]) -> str:
    """Return the findings as a table of text, a hint under what needs one.

    >>> print(report([Finding("gpu-a", "connect", Verdict.GOOD, "10.0.0.5"),
    ...               Finding("gpu-a", "python", Verdict.BAD, "no Python there", "install it")]))
    gpu-a  ✓ connect  10.0.0.5
    gpu-a  ✗ python   no Python there
                      → install it
    """
    rows = tuple(findings)
    host_width = max((len(row.host) for row in rows), default=0)
    check_width = max((len(row.check) for row in rows), default=0)
    lines = []
    for row in rows:
        head = f"{row.host:{host_width}}  {row.verdict} {row.check:{check_width}}  "
        lines.append(f"{head}{safe(row.text)}".rstrip())
        if row.hint:
            lines.append(f"{'':{len(head)}}→ {safe(row.hint)}")
    return "\n".join(lines)


def unreached(host: Host, error: HostError) -> Iterator[Finding]:
    """Yield the stages that a host passed, and the one that it did not."""
    for state, check in STAGE_CHECKS:
        if state == error.stage:
            yield Finding(host.name, check, Verdict.BAD, error.reason, error.hint)
            return
        if not host.is_local:
            yield Finding(host.name, check, Verdict.GOOD)


def reached(host: Host, facts: Facts, address: str) -> Iterator[Finding]:
    """Yield the stages of a host that passed all."""
    if not host.is_local:
        yield Finding(host.name, "connect", Verdict.GOOD, address)
        yield Finding(host.name, "login", Verdict.GOOD, f"as {host.user}" if host.user else "")
    yield Finding(host.name, "python", Verdict.GOOD, f"{facts.python_version} ({facts.python})")


def judged(host: Host, facts: Facts, settings: FleetSettings) -> Iterator[Finding]:
    """Yield the findings from a host's facts: versions, GPUs, CuPy, other users, disk."""
    problems = {problem.check: problem for problem in checks.problems(host, facts, settings)}
    for check, good in _good(host, facts):
        problem = problems.get(check)
        if problem:
            yield Finding(host.name, check, Verdict.BAD, problem.reason, problem.hint)
        elif good:
            yield Finding(host.name, check, Verdict.GOOD, good)
    if missing := checks.cupy_missing(host, facts):
        yield Finding(host.name, missing.check, Verdict.DOUBTFUL, missing.reason, missing.hint)
    for warning in checks.warnings(host, facts, settings):
        if not any(warning in problem.reason for problem in problems.values()):
            yield Finding(host.name, "warning", Verdict.DOUBTFUL, warning)
    yield _disk(host, facts)


def clock(host: Host, ahead_s: float) -> Finding:
    """Return how far a host's clock is off."""
    problem, warning = checks.clock_problem(ahead_s), checks.clock_warning(ahead_s)
    if problem:
        return Finding(host.name, "clock", Verdict.BAD, problem.reason, problem.hint)
    if warning:
        return Finding(host.name, "clock", Verdict.DOUBTFUL, warning, checks.CLOCK_HINT)
    bound = f"within {checks.CLOCK_SKEW_S:.0f} s of ours"
    return Finding(host.name, "clock", Verdict.GOOD, bound)


def shell(host: Host, took_s: float) -> Iterator[Finding]:
    """Yield that a host's login shell is slow, where it is."""
    if took_s > SLOW_SHELL_S:
        text = f"its login shell took {took_s:.0f} s to start Python: so does every start"
        hint = f"look at what it runs before a command: `ssh {host.ssh_name} true`"
        yield Finding(host.name, "shell", Verdict.DOUBTFUL, text, hint)


def folders(host: Host, places: Places) -> Iterator[Finding]:
    """Yield where a host keeps the agent, and that its TMPDIR is no place for sockets."""
    usable = [path for path, problem in places.cache if not problem]
    for path, problem in [each for each in places.cache if each[1]][:1]:
        text = f"{path}: {problem}; the agent is kept in {', '.join(usable)}"
        hint = f"there: remove {path}, or make it your own"
        yield Finding(host.name, "cache", Verdict.DOUBTFUL, text, hint)
        return
    if usable:
        yield Finding(host.name, "cache", Verdict.GOOD, usable[0])
    if len(places.temporary.encode()) > MAX_TMPDIR_BYTES:
        text = f"TMPDIR is too long for sockets, which are kept in /tmp: {places.temporary}"
        hint = "set a shorter TMPDIR there where /tmp is not to be used"
        yield Finding(host.name, "sockets", Verdict.DOUBTFUL, text, hint)


def sessions(host: Host, dropped: int) -> Iterator[Finding]:
    """Yield that a host's sshd dropped connections, where it did."""
    if dropped:
        text = f"its sshd dropped {dropped} connections before it took this one"
        hint = "raise MaxStartups in its sshd_config"
        yield Finding(host.name, "sessions", Verdict.DOUBTFUL, text, hint)


def shared_homes(homes: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which hosts have one home, by what identifies the home of each."""
    for identity in sorted(set(homes.values()) - {""}):
        first, *others = [name for name, home in homes.items() if home == identity]
        if others:
            text = f"shared with {', '.join(others)}: bootstrap makes it ready once"
            yield Finding(first, "home", Verdict.GOOD, text)


def families(addresses: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the hosts that are reached over another version of IP than the first one.

    >>> found = families({"a": "10.0.0.7", "b": "fd00::7", "c": "10.0.0.8"})
    >>> [(each.host, each.text) for each in found]
    [('b', 'reached at fd00::7, and a at 10.0.0.7: either must reach the other')]
    """
    outward = {name: each for name, each in addresses.items() if not is_loopback(each)}
    for name, address in outward.items():
        first, where = next(iter(outward.items()))
        if not same_family(address, where):
            text = f"reached at {address}, and {first} at {where}: either must reach the other"
            yield Finding(name, "address", Verdict.DOUBTFUL, text, checks.FAMILY_HINT)


def port(host: Host, reached: Reached) -> Finding:
    """Return whether a host could connect to a port here, as workers must to the scheduler's."""
    where = f"{bracketed(reached.host)}:{reached.port}"
    if not reached.error:
        return Finding(host.name, "port", Verdict.GOOD, f"reaches this machine at {where}")
    text = f"cannot reach this machine at {where}: {reached.error}"
    return Finding(host.name, "port", Verdict.BAD, text, checks.PORT_HINT)


def _good(host: Host, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield (check, text to show if it passes)."""
    there = dict(facts.packages)
    names = ("dask", "distributed", "numpy")
    yield (
        "versions",
        ", ".join(f"{name} {there[name]}" if name in there else f"no {name}" for name in names),
    )
    devices = checks.chosen_devices(host, facts)
    kinds = ", ".join(sorted({device.name for device in devices}))
    none = "none wanted" if host.gpus == () else "none: CPU workers"
    yield "gpus", f"{len(devices)} to use: {kinds}" if devices else none
    cupy = [f"{name} {version}" for name, version in facts.packages if name.startswith("cupy")]
    yield "cupy", ", ".join(cupy) if devices else ""
    yield "rapids", checks.rapids(facts) if devices else ""


def _disk(host: Host, facts: Facts) -> Finding:
    free = f"{facts.disk_free_bytes / 2**30:.0f} GiB free for spilling"
    if facts.disk_free_bytes >= DISK_NEEDED_BYTES:
        return Finding(host.name, "disk", Verdict.GOOD, free)
    hint = "free some, or point TMPDIR at a larger disk with env.TMPDIR="
    return Finding(host.name, "disk", Verdict.DOUBTFUL, free, hint)
