"""Hosts without a cluster: see who has which GPU, and hold claims on them.

An agent runs on each host for as long as somebody looks or holds a claim. No scheduler and no Dask
is needed anywhere.
"""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, replace

from gputui.errors import ClusterError, HostError, ProtocolError
from gputui.fleet.checks import chosen_devices
from gputui.fleet.deploy.start_agent import AgentOpener, OpenedAgent
from gputui.fleet.doctor import FACTS_S, answer, end, without_workers
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.stages import Ask, Stages
from gputui.model.claims import is_free
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading, Note
from gputui.model.snapshot import HostState
from gputui.protocol.agent import (
    Claimed,
    ClaimGpus,
    Facts,
    Ping,
    ReleaseGpus,
    StandInLine,
    Telemetry,
)

ANSWER_S = 10.0
LOOK_S = 0.5
"""How often one who waits looks for free GPUs."""


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs that are claimed now, by host."""

    devices: tuple[tuple[str, DeviceReading], ...]


class SharedHost:
    """A host whose agent runs, with its GPUs as they were read last."""

    def __init__(self, host: Host, opened: OpenedAgent, facts: Facts, lease_s: float) -> None:
        self.host = host
        self.facts = facts
        self.devices = chosen_devices(host, facts)
        self.lost = ""
        """Why the agent is gone; "" while it runs."""
        self._channel = opened.channel
        self._lease_s = lease_s
        self._claimed: asyncio.Queue[Claimed] = asyncio.Queue()

    async def follow(self) -> None:
        """Take the host's readings until its agent is gone."""
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep_lease())
                while (message := await self._channel.receive()) is not None:
                    if isinstance(message, Telemetry):
                        facts = replace(self.facts, devices=message.devices)
                        self.devices = chosen_devices(self.host, facts)
                    elif isinstance(message, Claimed):
                        self._claimed.put_nowait(message)
                keeping.cancel()
            self.lost = "its agent ended"
        except* ProtocolError as errors:
            self.lost = str(errors.exceptions[0])
        self._claimed.put_nowait(Claimed(error=self.lost))

    async def _keep_lease(self) -> None:
        for number in range(2**31):
            self._channel.send(Ping(number))
            await asyncio.sleep(self._lease_s / 3)

    async def claim(self, uuids: Collection[str], note: Note) -> Claimed:
        """Claim all of these or none."""
        self._channel.send(ClaimGpus(tuple(uuids), note))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._claimed.get()
        except TimeoutError:
            return Claimed(error="its agent does not answer")

    def release(self, uuids: Collection[str]) -> None:
        """End claims."""
        self._channel.send(ReleaseGpus(tuple(uuids)))

    def stand_in_line(self, uuids: Collection[str], gpus: int, note: Note) -> None:
        """Wait for GPUs, after everybody who waits already; for none, leave the line."""
        self._channel.send(StandInLine(tuple(uuids), gpus, note))


@contextlib.asynccontextmanager
async def shared_hosts(
    hosts: Iterable[Host], settings: FleetSettings, ask: Ask, opener: AgentOpener | None = None
) -> AsyncIterator[tuple[tuple[SharedHost, ...], tuple[HostError, ...]]]:
    """Start an agent on every host; yield those that answered and the errors of the others.

    All agents and their claims end with the block.
    """
    settings = replace(settings, cluster_id=f"who-{secrets.token_hex(4)}")
    opener = opener or AgentOpener(settings)
    opened: list[OpenedAgent] = []
    try:
        found = await asyncio.gather(
            *(_open(host, settings, opener, ask, opened) for host in hosts)
        )
        up = tuple(each for each in found if isinstance(each, SharedHost))
        failed = tuple(each for each in found if isinstance(each, HostError))
        following = [asyncio.ensure_future(each.follow()) for each in up]
        try:
            yield up, failed
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
    finally:
        await asyncio.shield(_close(opened, opener))


async def _open(
    host: Host, settings: FleetSettings, opener: AgentOpener, ask: Ask, opened: list[OpenedAgent]
) -> SharedHost | HostError:
    stages = Stages(host.name, settings.stage_timeout_s, entered=lambda state, text: None, ask=ask)
    try:
        agent = await opener.open(host, stages)
    except HostError as error:
        return error
    opened.append(agent)
    agent.channel.send(without_workers(host, settings))
    try:
        facts = await answer(agent.channel, Facts, FACTS_S)
    except (ProtocolError, TimeoutError, EOFError) as error:
        return HostError(host.name, HostState.PROBING, str(error) or "its agent did not answer")
    return SharedHost(host, agent, facts, settings.lease_s)


async def _close(opened: Iterable[OpenedAgent], opener: AgentOpener) -> None:
    await asyncio.gather(*(end(agent.channel) for agent in opened))
    await opener.close()


def pick_free(
    hosts: Iterable[SharedHost], count: int, memory_bytes: int = 0
) -> list[tuple[SharedHost, tuple[DeviceReading, ...]]]:
    """Return `count` GPUs that are free, of as few hosts as possible; [] where there are fewer."""
    free = [
        (
            host,
            tuple(d for d in host.devices if is_free(d) and _memory_free(d) >= memory_bytes),
        )
        for host in hosts
        if not host.lost
    ]
    enough = [each for each in free if len(each[1]) >= count]
    if enough:
        host, devices = min(enough, key=lambda each: len(each[1]))
        return [(host, devices[:count])]
    picked, left = [], count
    for host, devices in sorted(free, key=lambda each: -len(each[1])):
        if left and devices:
            picked.append((host, devices[:left]))
            left -= len(devices[:left])
    return [] if left else picked


def _memory_free(device: DeviceReading) -> int:
    return (device.memory_total_bytes or 0) - (device.memory_used_bytes or 0)


async def hold(
    hosts: tuple[SharedHost, ...], count: int, note: Note, wait_s: float, memory_bytes: int = 0
) -> Held:
    """Claim `count` GPUs that are free, all or none; wait in line for them at most `wait_s`.

    Over several hosts in the order of their names, and with a pause that differs from one to the
    next, so that two who wait do not each keep a part. Raises ClusterError.
    """
    if count > (there := sum(len(host.devices) for host in hosts)):
        raise ClusterError(f"too few GPUs: {count} asked for, {there} on these hosts")
    until = time.monotonic() + wait_s
    if wait_s:
        for host in hosts:
            if host.devices:
                host.stand_in_line([device.uuid for device in host.devices], count, note)
    try:
        while True:
            answers = await _claim_all(pick_free(hosts, count, memory_bytes), note)
            if isinstance(answers, Held):
                return answers
            if time.monotonic() > until:
                raise ClusterError(_why_not(hosts, count, answers))
            await asyncio.sleep(LOOK_S * (0.5 + random.random()))
    finally:
        if wait_s:
            for host in hosts:
                host.stand_in_line((), 0, note)


async def _claim_all(
    picked: list[tuple[SharedHost, tuple[DeviceReading, ...]]], note: Note
) -> Held | tuple[Claimed, ...]:
    """Claim the chosen GPUs; if one host refuses, release the others' claims."""
    taken: list[tuple[SharedHost, tuple[DeviceReading, ...]]] = []
    if not picked:
        return ()
    for host, devices in sorted(picked, key=lambda each: each[0].host.name):
        claimed = await host.claim([device.uuid for device in devices], note)
        if claimed != Claimed():
            for other, some in taken:
                other.release([device.uuid for device in some])
            return (claimed,)
        taken.append((host, devices))
    return Held(tuple((host.host.name, device) for host, devices in taken for device in devices))


def _why_not(hosts: tuple[SharedHost, ...], count: int, answers: tuple[Claimed, ...]) -> str:
    """Describe why GPUs cannot be had now."""
    for claimed in answers:
        if claimed.error:
            return claimed.error
        if claimed.ahead:
            return f"{', '.join(claimed.ahead)} waited first; add --wait 2h to stand in line"
    free = sum(is_free(device) for host in hosts for device in host.devices)
    return f"too few free GPUs: {count} asked for, {free} free; see gputui who, or add --wait 2h"
