"""Find what is wrong with hosts: every check on each, by the same path that a cluster takes.

All hosts are reached at once; an agent is started on each, which reports its facts, tries a port
here, and ends.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gputui.errors import HostError
from gputui.fleet import checks, reachability
from gputui.fleet.addresses import bracketed, is_loopback, same_family
from gputui.fleet.deploy.start_agent import AgentOpener, LoneAgent, lone_agents
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.reachability import AskAgent, End
from gputui.fleet.session import OpenedAgent, Places
from gputui.fleet.stages import Ask
from gputui.folders import LONGEST_SOCKET_NAME, MAX_SOCKET_PATH_BYTES
from gputui.model.hosts import Host
from gputui.model.plain_text import safe
from gputui.model.snapshot import HostState
from gputui.protocol.agent import Facts, Reach, Reached

PORT_S = 5.0
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
    hosts: Iterable[Host], settings: FleetSettings, ask: Ask, opener: AgentOpener | None = None
) -> tuple[Finding, ...]:
    """Return the findings on every host, in the order of the hosts."""
    hosts = tuple(hosts)
    async with lone_agents(hosts, settings, ask, opener) as agents:
        up = [each for each in agents if isinstance(each, LoneAgent)]
        ports = await asyncio.gather(*(_try_port(settings, each.opened, each.ask) for each in up))
        found = [tuple(examined(*each, settings)) for each in zip(up, ports, strict=True)]
        ways = await _try_ways(up)
    by_host = {each.host.name: some for each, some in zip(up, found, strict=True)}
    for host, each in zip(hosts, agents, strict=True):
        if isinstance(each, HostError):
            by_host[host.name] = tuple(unreached(host, each))
    homes = {each.host.name: each.opened.places.home for each in up}
    addresses = {each.host.name: each.opened.far_address for each in up}
    together = (*families(addresses), *shared_homes(homes))
    return (*(one for host in hosts for one in by_host[host.name]), *together, *ways)


def examined(agent: LoneAgent, reached_port: Reached, settings: FleetSettings) -> Iterator[Finding]:
    """Yield the findings on a host whose agent runs, and tried a port here."""
    host, opened = agent.host, agent.opened
    yield from reached(host, agent.facts, opened.far_address)
    yield from judged(host, agent.facts, settings)
    if opened.clock_ahead_s is not None:
        yield clock(host, opened.clock_ahead_s)
    yield from shell(host, opened.shell_s)
    yield from folders(host, opened.places)
    yield port(host, reached_port)
    yield from sessions(host, agent.dropped)


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


async def _try_ways(up: list[LoneAgent]) -> list[Finding]:
    """Return the ways that are closed between this machine and workers, and between hosts."""
    remote = [each.opened for each in up if not is_loopback(each.opened.far_address)]
    ends = []
    for each in up if remote else ():
        there = each.opened.far_address
        address = each.host.listen or (remote[0].local_address if is_loopback(there) else there)
        ends.append(End(each.host.name, address, each.ask))
    ports = await asyncio.gather(*map(reachability.open_port, ends))
    ways = [
        (end.name, reachability.from_here(each.opened.local_address, end, port))
        for each, end, port in zip(up, ends, ports, strict=bool(remote))
    ]
    ways += [
        (source.name, reachability.between(source, target, port))
        for source in ends
        for target, port in zip(ends, ports, strict=True)
        if source.address != target.address
    ]
    errors = await asyncio.gather(*(way for _, way in ways))
    closed = zip((name for name, _ in ways), errors, strict=True)
    hint = reachability.HINT
    return [Finding(name, "workers", Verdict.BAD, error, hint) for name, error in closed if error]


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
        text = f"{path}: {problem}; the agent is kept in {', '.join(usable) or 'a new folder'}"
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
    devices = checks.chosen_devices(host, facts.devices)
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
