"""Agents of hosts without a cluster.

`doctor`, `who` and `claim` start them, and end them again.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from gputui.errors import HostError, UsageError
from gputui.fleet.checks import chosen_devices
from gputui.fleet.claiming import HostClaims
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.session import AgentSession, OpenedAgent, end
from gputui.fleet.stages import Ask, FleetSettings, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from gputui.process.background import Background, words
from gputui.process.procfs import IS_LINUX
from gputui.protocol.agent import (
    Claimed,
    Facts,
    FromAgent,
    ProcessEnded,
    Telemetry,
)


class LoneAgent:
    """The agent of a host without a cluster, and its GPUs as they were read last."""

    def __init__(
        self, host: Host, opened: OpenedAgent, stages: Stages, settings: FleetSettings
    ) -> None:
        """Begin to follow the agent."""
        self.host, self.opened = host, opened
        self.facts: Facts
        self.claims = HostClaims(host, opened.channel.send)
        self.dropped = stages.dropped
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once its facts are there; a HostError where it does not report any."""
        self._stages = stages
        session = AgentSession(opened, stages, settings, self._received, lambda quiet_s: None)
        self.ask = session.ask
        self._tasks = Background(self._lose, logged=False)
        self._tasks.start(session.attend(self._introduce(session)), f"the agent of {host.name}")

    async def _introduce(self, session: AgentSession) -> None:
        """Send the first message to an agent that is to start no worker."""
        stages = self._stages
        late = f"its agent started and then said nothing for {stages.timeout_s:g} s"
        async with stages.enter(HostState.PROBING, late):
            await session.configure(self.host, workers_wanted=False)
        session.ready = True
        self.up.set_result(None)

    def _received(self, message: FromAgent) -> None:
        match message:
            case Facts():
                self.facts = message
                self.claims.devices = chosen_devices(self.host, message.devices)
            case Telemetry():
                self.claims.devices = chosen_devices(self.host, message.devices)
            case Claimed():
                self.claims.answered(message)
            case ProcessEnded():
                self.claims.over = True

    def _lose(self, what: str, error: Exception) -> None:
        if not isinstance(error, HostError):
            error = self._stages.error(words(error))
        self.claims.lose(error.reason)
        if not self.up.done():
            self.up.set_exception(error)

    async def close(self) -> None:
        """End the agent, and with it its claims."""
        await self._tasks.close()
        await end(self.opened.channel)
        await self.opened.channel.close()
        if self.opened.connection is not None:
            await self.opened.connection.close()


@contextlib.asynccontextmanager
async def lone_agents(
    hosts: Iterable[Host],
    settings: FleetSettings,
    ask: Ask,
    opener: AgentOpener | None = None,
    *,
    once: bool = False,
) -> AsyncIterator[tuple[LoneAgent | HostError, ...]]:
    """Start an agent on every host; yield each that answered, or why it did not.

    All of them end with the block, those that are asked `once` as soon as they have answered.
    Raises UsageError for this machine where it is a Mac.
    """
    hosts = tuple(hosts)
    if not IS_LINUX and any(host.is_local for host in hosts):
        raise UsageError("localhost is no host here: its agent needs Linux; name other machines")
    # Its agents hold claims for as long as their leases last, and silence ends neither earlier.
    settings = replace(
        settings, cluster_id=f"alone-{secrets.token_hex(4)}", silence_s=settings.lease_s
    )
    opener = opener or AgentOpener(settings)
    agents: list[LoneAgent] = []

    async def start(host: Host) -> LoneAgent | HostError:
        stages = Stages(host.name, settings.stage_timeout_s, ask=ask)
        try:
            agent = LoneAgent(host, await opener.open(host, stages), stages, settings)
            agents.append(agent)
            await agent.up
            if once:
                await agent.close()
        except HostError as error:
            return error
        return agent

    try:
        yield tuple(await asyncio.gather(*map(start, hosts)))
    finally:
        closing = asyncio.gather(*(agent.close() for agent in agents))
        try:
            await asyncio.shield(closing)
        finally:
            await asyncio.wait([closing])  # also where a user interrupts that
            await opener.close()
