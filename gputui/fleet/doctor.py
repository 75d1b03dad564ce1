"""Find what is wrong with hosts: every check on each, by the same path that a cluster takes.

All hosts are reached at once; an agent is started on each, which reports its facts, tries a port
here, and ends.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from gputui.errors import HostError, ProtocolError
from gputui.fleet import findings, reachability
from gputui.fleet.addresses import is_loopback
from gputui.fleet.agent_channel import AgentChannel
from gputui.fleet.deploy.start_agent import AgentOpener, OpenedAgent
from gputui.fleet.findings import Finding, Verdict
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.stages import Ask, Stages
from gputui.model.hosts import Host
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
    together = (*findings.families(addresses), *findings.shared_homes(homes))
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
        return tuple(findings.unreached(host, error))
    came_up[host.name] = opened
    try:
        found = await _examine(host, settings, opened)
        return (*found, *findings.sessions(host, stages.dropped))
    except (ProtocolError, TimeoutError, EOFError) as error:
        words = str(error) or "its agent did not answer"
        return (Finding(host.name, "agent", Verdict.BAD, words),)


async def _examine(host: Host, settings: FleetSettings, opened: OpenedAgent) -> tuple[Finding, ...]:
    """Return the findings on a host whose agent runs."""
    opened.channel.send(without_workers(host, settings))
    facts = await answer(opened.channel, Facts, FACTS_S)
    found = [*findings.reached(host, facts, opened.far_address)]
    found += findings.judged(host, facts, settings)
    if opened.clock_ahead_s is not None:
        found.append(findings.clock(host, opened.clock_ahead_s))
    found += findings.shell(host, opened.shell_s)
    found += findings.folders(host, opened.places)
    found.append(findings.port(host, await _try_port(settings, opened)))
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
