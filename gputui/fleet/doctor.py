"""Find what is wrong with hosts: every check on each, by the same path that a cluster takes.

All hosts are reached at once; an agent is started on each, which reports its facts, tries the ways
that workers need, and ends.
"""

import contextlib
import socket
from collections.abc import Iterable, Iterator

from gputui.fleet import checks
from gputui.fleet.checks import Finding, Verdict
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.host import FleetHost
from gputui.fleet.lone_agents import lone_agents
from gputui.fleet.stages import Ask, FleetSettings
from gputui.model.hosts import Host
from gputui.model.plain_text import many, safe
from gputui.model.snapshot import HostState

CONNECTIONS = 4_096
"""From hosts, at once: the kernel takes no more by default. Source: listen(2), somaxconn."""

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
    with listening(settings.scheduler_port) as port:
        async with lone_agents(hosts, settings, ask, opener, port=port) as found:
            return tuple(each for host in found for each in findings(host, settings))


@contextlib.contextmanager
def listening(port: int) -> Iterator[int]:
    """Listen where a scheduler would, and yield the port; one that listens there will do, too."""
    both = socket.has_dualstack_ipv6()
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            listener = socket.create_server(
                ("", port),
                family=socket.AF_INET6 if both else socket.AF_INET,
                backlog=CONNECTIONS,
                dualstack_ipv6=both,
            )
            port = opened.enter_context(listener).getsockname()[1]
        yield port


def findings(host: FleetHost, settings: FleetSettings) -> Iterator[Finding]:
    """Yield the findings on a host that is ready, lost or has failed."""
    name, status, facts = host.name, host.status, host.facts
    if facts is None:
        yield from unreached(host)
        return
    if not host.host.is_local:
        yield Finding(name, "connect", Verdict.GOOD, host.far_address)
        yield Finding(name, "login", Verdict.GOOD, f"as {host.host.user}" if host.host.user else "")
    found = list(checks.examine(host.host, facts, settings))
    if host.clock and not host.host.is_local:
        found.append(host.clock)
    yield from found
    if host.state is not HostState.READY:
        if all(each.text != status.reason for each in found):
            yield Finding(name, "workers", Verdict.BAD, status.reason, status.hint)
    elif host.tunnel:
        text = f"its workers go through its SSH connection: {host.tunnel.why}"
        yield Finding(name, "tunnel", Verdict.GOOD, text)
    else:
        where = host.scheduler_address.removeprefix("tls://")
        yield Finding(name, "port", Verdict.GOOD, f"reaches this machine at {where}")
    if host.dropped:
        yield Finding(
            name,
            "sessions",
            Verdict.DOUBTFUL,
            f"its sshd dropped {many(host.dropped, 'connection')} before it took this one",
            "raise MaxStartups in its sshd_config",
        )


def unreached(host: FleetHost) -> Iterator[Finding]:
    """Yield the stages that a host passed, and the one that it did not."""
    for state, check in STAGE_CHECKS.items():
        if state == host.status.failed_stage:
            found = Finding(host.name, check, Verdict.BAD, host.status.reason, host.status.hint)
            yield host.clock if host.clock and host.clock.text == found.text else found
            return
        if not host.host.is_local:
            yield Finding(host.name, check, Verdict.GOOD)


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
