"""The findings of `doctor`: one check on one host each, and the table of them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gputui.errors import HostError
from gputui.fleet import checks
from gputui.fleet.addresses import bracketed, is_loopback, same_family
from gputui.fleet.deploy.start_agent import Places
from gputui.fleet.fleet_settings import FleetSettings
from gputui.folders import LONGEST_SOCKET_NAME, MAX_SOCKET_PATH_BYTES
from gputui.model.hosts import Host
from gputui.model.plain_text import safe
from gputui.model.snapshot import HostState
from gputui.protocol.agent import Facts, Reached

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
