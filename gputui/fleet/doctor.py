"""Find what is wrong with hosts: every check on each, by the same path that a cluster takes.

All hosts are reached at once; an agent is started on each, which reports its facts, tries a port
here, and ends.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gputui.errors import HostError
from gputui.fleet import checks, reachability
from gputui.fleet.addresses import LOOPBACK, bracketed, is_loopback
from gputui.fleet.checks import Finding, Verdict
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.lone_agents import LoneAgent, lone_agents
from gputui.fleet.reachability import End
from gputui.fleet.session import AskAgent, OpenedAgent
from gputui.fleet.stages import Ask, FleetSettings
from gputui.fleet.tunnel import Tunnel, free_ports
from gputui.model.hosts import Host
from gputui.model.plain_text import safe
from gputui.model.snapshot import HostState
from gputui.protocol.agent import Reach, Reached

PORT_S = 5.0
SLOW_SHELL_S = 5.0
"""With more, pyenv or a module system waits for something."""

STAGE_CHECKS = {
    HostState.RESOLVING: "resolve",
    HostState.CONNECTING: "connect",
    HostState.AUTHENTICATING: "login",
    HostState.PROBING: "python",
}
"""The check that each stage of reaching a host is."""


async def diagnose(
    hosts: Iterable[Host], settings: FleetSettings, ask: Ask, opener: AgentOpener | None = None
) -> tuple[Finding, ...]:
    """Return the findings on every host, in the order of the hosts."""
    hosts = tuple(hosts)
    async with lone_agents(hosts, settings, ask, opener) as agents:
        up = [each for each in agents if isinstance(each, LoneAgent)]
        ports = await asyncio.gather(*(_try_port(settings, each.opened, each.ask) for each in up))
        closed = await _try_ways(up)
        shut = {each.host.name for each, port in zip(up, ports, strict=True) if port.error}
        shut |= {hosts[0] for hosts, *_ in closed if len(hosts) == 1}
        tried = [
            each
            for each in up
            if each.host.tunnel
            or (each.host.tunnel is None and each.opened.connection and each.host.name in shut)
        ]
        problems = await asyncio.gather(*map(_try_tunnel, tried))
        tunnels = {each.host.name: found for each, found in zip(tried, problems, strict=True)}
        found = [tuple(examined(*each, settings, tunnels)) for each in zip(up, ports, strict=True)]
    ways = through([each.host.name for each in up], closed, tunnels)
    by_host = {each.host.name: some for each, some in zip(up, found, strict=True)}
    for host, each in zip(hosts, agents, strict=True):
        if isinstance(each, HostError):
            by_host[host.name] = tuple(unreached(host, each))
    return (*(one for host in hosts for one in by_host[host.name]), *ways)


def examined(
    agent: LoneAgent, port: Reached, settings: FleetSettings, tunnels: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the findings on a host whose agent runs, and tried a port here."""
    host, opened = agent.host, agent.opened
    name = host.name
    if not host.is_local:
        yield Finding(name, "connect", Verdict.GOOD, opened.far_address)
        yield Finding(name, "login", Verdict.GOOD, f"as {host.user}" if host.user else "")
    yield from checks.examine(host, agent.facts, settings)
    if opened.greeting:
        yield checks.clock(host, opened.clock_ahead_s)
        yield from shell(host, opened.shell_s)
    where = f"{bracketed(port.host)}:{port.port}"
    if port.error:
        reason = f"cannot reach this machine at {where}: {port.error}"
        verdict = Verdict.BAD if tunnels.get(name, "none") else Verdict.DOUBTFUL
        yield Finding(name, "port", verdict, reason, checks.PORT_HINT)
    else:
        yield Finding(name, "port", Verdict.GOOD, f"reaches this machine at {where}")
    if agent.dropped:
        yield Finding(
            name,
            "sessions",
            Verdict.DOUBTFUL,
            f"its sshd dropped {agent.dropped} connections before it took this one",
            "raise MaxStartups in its sshd_config",
        )


async def _try_port(settings: FleetSettings, opened: OpenedAgent, ask: AskAgent) -> Reached:
    """Have the host connect to a port here, where the scheduler would listen."""
    address, port = settings.scheduler_host or opened.local_address, settings.scheduler_port
    try:
        listener = await asyncio.start_server(_hang_up, address, port)
        async with listener, asyncio.timeout(PORT_S * 2):
            port = listener.sockets[0].getsockname()[1]
            tried: Reached = await ask(Reach(address, port, PORT_S))
            return tried
    except TimeoutError:
        return Reached(address, port, "its agent did not answer")
    except OSError as error:
        return Reached(address, port, f"not an address here: {error.strerror}")


class Closed(NamedTuple):
    """A way that is closed, between this machine and a host, or between two hosts."""

    hosts: tuple[str, ...]
    text: str
    hint: str = reachability.HINT


async def _try_ways(up: list[LoneAgent]) -> list[Closed]:
    """Return the ways that are closed between this machine and workers, and between hosts."""
    remote = [each.opened for each in up if not is_loopback(each.opened.far_address)]
    if not remote:
        return []
    ends = []
    for each in up:
        there = each.opened.far_address
        address = each.host.listen or (remote[0].local_address if is_loopback(there) else there)
        ends.append(End.of(each.host, address, each.ask))
    opened = await asyncio.gather(*map(reachability.open_port, ends))
    found = []
    for place, (each, port) in enumerate(zip(up, opened, strict=True)):
        if each.host.listen and port.error:
            text, hint = reachability.cannot_listen(port), reachability.LISTEN_HINT
            found.append(Closed((each.host.name, each.host.name), text, hint))
        if (address := reachability.address_of(port)) and not each.host.contact:
            ends[place] = ends[place]._replace(address=address)
    ways: list[tuple[tuple[str, ...], Coroutine[Any, Any, str]]] = [
        ((end.name,), reachability.from_here(each.opened.local_address, end, port.port))
        for each, end, port in zip(up, ends, opened, strict=True)
    ]
    ways += [
        ((source.name, target.name), reachability.between(source, target, port.port))
        for source in ends
        for target, port in zip(ends, opened, strict=True)
        if source.address != target.address
    ]
    errors = await asyncio.gather(*(way for _, way in ways))
    closed = zip((hosts for hosts, _ in ways), errors, strict=True)
    return found + [Closed(hosts, error) for hosts, error in closed if error]


async def _try_tunnel(agent: LoneAgent) -> str:
    """Return why a host's workers cannot go through its SSH connection; "" where they can."""
    try:
        async with await asyncio.start_server(_hang_up, LOOPBACK) as listener:
            port = listener.sockets[0].getsockname()[1]
            tunnel = Tunnel("", agent.host.ports or free_ports(1))
            async with asyncio.timeout(PORT_S * 2):
                await tunnel.open(agent.opened.connection, port, agent.ask)
    except TimeoutError:
        return reachability.through_ssh(TimeoutError("no answer"))
    except OSError as error:
        return reachability.through_ssh(error)
    return ""


def through(
    up: Iterable[str], closed: Iterable[Closed], tunnels: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the ways that are closed to workers, and what `tunnels`, host → problem, mean."""
    good = {name for name, problem in tunnels.items() if not problem}
    for hosts, text, hint in closed:
        if len(hosts) == 1 or good.isdisjoint(hosts):
            verdict = Verdict.BAD if good.isdisjoint(hosts) else Verdict.DOUBTFUL
            yield Finding(hosts[0], "workers", verdict, text, hint)
    others = [each for each in up if each not in good]
    for name, problem in tunnels.items():
        if problem:
            yield Finding(name, "tunnel", Verdict.BAD, problem, reachability.FORWARDING_HINT)
        elif others:
            text, hint = reachability.apart(name, others[0]), reachability.APART_HINT
            yield Finding(name, "tunnel", Verdict.BAD, text, hint)
        else:
            yield Finding(name, "tunnel", Verdict.GOOD, "its workers go through its SSH connection")


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


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
    for state, check in STAGE_CHECKS.items():
        if state == error.stage:
            yield Finding(host.name, check, Verdict.BAD, error.reason, error.hint)
            return
        if not host.is_local:
            yield Finding(host.name, check, Verdict.GOOD)


def shell(host: Host, took_s: float) -> Iterator[Finding]:
    """Yield that a host's login shell is slow, where it is."""
    if took_s > SLOW_SHELL_S:
        yield Finding(
            host.name,
            "shell",
            Verdict.DOUBTFUL,
            f"its login shell took {took_s:.0f} s to start Python: so does every start",
            f"look at what it runs before a command: `{host.by_hand} true`",
        )
