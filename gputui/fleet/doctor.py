"""Find what is wrong with hosts: every check on each, by the same path that a cluster takes.

All hosts are reached at once; an agent is started on each, which reports its facts, tries a port
here, and ends.
"""

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from gputui.errors import HostError, ProtocolError
from gputui.fleet import findings
from gputui.fleet.agent_channel import AgentChannel
from gputui.fleet.deploy.opening import AgentOpener, OpenedAgent
from gputui.fleet.findings import Finding, Verdict
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.stages import Ask, Stages
from gputui.model.hosts import Host
from gputui.protocol import VERSION
from gputui.protocol.agent import Configure, Facts, Reach, Reached, Shutdown

FACTS_S = 15.0
PORT_S = 5.0
ENDING_S = 5.0

Answer = TypeVar("Answer", Facts, Reached)


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
    finally:
        await shared.close()
    came_up = {host.name: opened[host.name] for host in hosts if host.name in opened}
    homes = {name: each.places.get("home", "") for name, each in came_up.items()}
    addresses = {name: each.far_address for name, each in came_up.items()}
    together = (*findings.families(addresses), *findings.shared_homes(homes))
    return (*(finding for one in found for finding in one), *together)


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
    finally:
        await asyncio.shield(_end(opened.channel))


async def _examine(host: Host, settings: FleetSettings, opened: OpenedAgent) -> tuple[Finding, ...]:
    """Return the findings on a host whose agent runs."""
    opened.channel.send(
        Configure(
            version=VERSION,
            cluster_id=settings.cluster_id,
            host=host.name,
            lease_s=settings.lease_s,
            telemetry_interval_s=settings.telemetry_interval_s,
            env=host.env,
            only_examined=True,
        )
    )
    facts = await _answer(opened.channel, Facts, FACTS_S)
    found = [*findings.reached(host, facts, opened.far_address)]
    found += findings.judged(host, facts, settings)
    if opened.clock_ahead_s is not None:
        found.append(findings.clock(host, opened.clock_ahead_s))
    found += findings.shell(host, opened.shell_s)
    found += findings.folders(host, opened.places)
    found.append(findings.port(host, await _try_port(settings, opened)))
    return tuple(found)


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
        return await _answer(opened.channel, Reached, PORT_S * 2)


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _answer(channel: AgentChannel, kind: type[Answer], bound_s: float) -> Answer:
    """Return the next message of a kind; raises TimeoutError, and EOFError at the end."""
    async with asyncio.timeout(bound_s):
        while (message := await channel.receive()) is not None:
            if isinstance(message, kind):
                return message
    raise EOFError("; ".join(("its agent ended", *channel.last_log_lines)))


async def _end(channel: AgentChannel) -> None:
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
