"""Agents of hosts without a cluster, and claims on their GPUs: all that are asked for, or none.

`doctor`, `who` and `claim` start them, and end them again.
"""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import replace

from gputui.errors import ClusterError, HostError
from gputui.fleet.checks import chosen_devices
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.session import AgentSession, OpenedAgent, end
from gputui.fleet.stages import Ask, FleetSettings, Stages
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading, Note, is_free
from gputui.model.snapshot import HostState
from gputui.process.background import Background, words
from gputui.protocol.agent import (
    Claimed,
    ClaimGpus,
    Facts,
    FromAgent,
    ReleaseGpus,
    StandInLine,
    Telemetry,
)

CLAIMED_S = 10.0
"""How long an agent may take to answer a claim."""
LOOK_S = 0.5
"""How often one who waits looks for free GPUs."""


class LoneAgent:
    """The agent of a host without a cluster, and its GPUs as they were read last."""

    def __init__(
        self, host: Host, opened: OpenedAgent, stages: Stages, settings: FleetSettings
    ) -> None:
        """Begin to follow the agent."""
        self.host, self.opened = host, opened
        self.facts: Facts
        self.devices: tuple[DeviceReading, ...] = ()
        self.dropped = stages.dropped
        self.lost = ""
        """Why the agent is gone; "" while it runs."""
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once its facts are there; a HostError where it does not report any."""
        self._stages = stages
        self._claimed: asyncio.Queue[Claimed] = asyncio.Queue()
        session = AgentSession(opened, stages, settings, self._received, lambda quiet_s: None)
        self.ask, self.send = session.ask, opened.channel.send
        self._tasks = Background(self._lose, logged=False)
        self._tasks.start(session.attend(self._introduce(session)), f"the agent of {host.name}")

    async def _introduce(self, session: AgentSession) -> None:
        """Send the first message to an agent that is to start no worker."""
        stages = self._stages
        late = f"its agent started and then said nothing for {stages.timeout_s:g} s"
        async with stages.enter(HostState.PROBING, late):
            await session.configure(self.host, only_examined=True)
        self.up.set_result(None)

    def _received(self, message: FromAgent) -> None:
        match message:
            case Facts():
                self.facts, self.devices = message, chosen_devices(self.host, message.devices)
            case Telemetry():
                self.devices = chosen_devices(self.host, message.devices)
            case Claimed():
                self._claimed.put_nowait(message)

    def _lose(self, what: str, error: Exception) -> None:
        if not isinstance(error, HostError):
            error = self._stages.error(words(error))
        self.lost = error.reason
        self._claimed.put_nowait(Claimed(error=self.lost))
        if not self.up.done():
            self.up.set_exception(error)

    async def claim(self, uuids: Collection[str], note: Note) -> Claimed:
        """Claim all of these or none."""
        self.send(ClaimGpus(tuple(uuids), note))
        try:
            async with asyncio.timeout(CLAIMED_S):
                return await self._claimed.get()
        except TimeoutError:
            return Claimed(error="its agent does not answer")

    async def close(self) -> None:
        """End the agent, and with it its claims."""
        await self._tasks.close()
        await end(self.opened.channel)
        await self.opened.channel.close()


@contextlib.asynccontextmanager
async def lone_agents(
    hosts: Iterable[Host], settings: FleetSettings, ask: Ask, opener: AgentOpener | None = None
) -> AsyncIterator[tuple[LoneAgent | HostError, ...]]:
    """Start an agent on every host; yield each that answered, or why it did not.

    All of them end with the block.
    """
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
        except HostError as error:
            return error
        return agent

    try:
        yield tuple(await asyncio.gather(*map(start, hosts)))
    finally:
        await asyncio.shield(asyncio.gather(*(agent.close() for agent in agents)))
        await opener.close()


Picked = list[tuple[LoneAgent, tuple[DeviceReading, ...]]]
"""GPUs to claim, by host."""


def pick_free(hosts: Iterable[LoneAgent], count: int, memory_bytes: int = 0) -> Picked:
    """Return `count` GPUs that are free, of as few hosts as possible; [] where there are fewer."""
    free = [
        (
            host,
            tuple(
                each
                for each in host.devices
                if is_free(each)
                and (each.memory_total_bytes or 0) - (each.memory_used_bytes or 0) >= memory_bytes
            ),
        )
        for host in hosts
        if not host.lost
    ]
    if enough := [each for each in free if len(each[1]) >= count]:
        host, devices = min(enough, key=lambda each: len(each[1]))
        return [(host, devices[:count])]
    picked, left = [], count
    for host, devices in sorted(free, key=lambda each: -len(each[1])):
        if left and devices:
            picked.append((host, devices[:left]))
            left -= len(devices[:left])
    return [] if left else picked


async def hold(
    hosts: tuple[LoneAgent, ...], count: int, note: Note, wait_s: float, memory_bytes: int = 0
) -> tuple[tuple[str, DeviceReading], ...]:
    """Claim `count` GPUs that are free, all or none; wait in line for them at most `wait_s`.

    Returns them, each with its host. Over several hosts in the order of their names, and with a
    pause that differs from one to the next, so that two who wait do not each keep a part. Raises
    ClusterError.
    """
    if count > (there := sum(len(host.devices) for host in hosts)):
        raise ClusterError(f"too few GPUs: {count} asked for, {there} on these hosts")
    until = time.monotonic() + wait_s
    if wait_s:
        for host in hosts:
            if host.devices:
                host.send(StandInLine(tuple(each.uuid for each in host.devices), count, note))
    try:
        while True:
            picked = sorted(pick_free(hosts, count, memory_bytes), key=lambda p: p[0].host.name)
            refused = await _claim_all(picked, note)
            if picked and refused is None:
                return tuple((host.host.name, each) for host, some in picked for each in some)
            if time.monotonic() > until:
                raise ClusterError(_why_not(hosts, count, refused or Claimed()))
            await asyncio.sleep(LOOK_S * (0.5 + random.random()))
    finally:
        if wait_s:
            for host in hosts:
                host.send(StandInLine((), 0, note))


async def _claim_all(picked: Picked, note: Note) -> Claimed | None:
    """Claim the chosen GPUs; if one host refuses, release the others' claims and say why."""
    for number, (host, devices) in enumerate(picked):
        claimed = await host.claim([device.uuid for device in devices], note)
        if claimed != Claimed():
            for other, some in picked[:number]:
                other.send(ReleaseGpus(tuple(device.uuid for device in some)))
            return claimed
    return None


def _why_not(hosts: tuple[LoneAgent, ...], count: int, refused: Claimed) -> str:
    """Describe why GPUs cannot be had now."""
    if refused.error:
        return refused.error
    if refused.ahead:
        return f"{', '.join(refused.ahead)} waited first; add --wait 2h to stand in line"
    free = sum(is_free(device) for host in hosts for device in host.devices)
    return f"too few free GPUs: {count} asked for, {free} free; see gputui who, or add --wait 2h"
