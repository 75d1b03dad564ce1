"""Hold claims on GPUs of hosts without a cluster: those that are free, all of them or none."""

import asyncio
import random
import time
from collections.abc import Iterable

from gputui.errors import ClusterError
from gputui.fleet.deploy.start_agent import LoneAgent
from gputui.model.readings import DeviceReading, Note, is_free
from gputui.protocol.agent import Claimed

LOOK_S = 0.5
"""How often one who waits looks for free GPUs."""


Picked = list[tuple[LoneAgent, tuple[DeviceReading, ...]]]
"""GPUs to claim, by host."""


def pick_free(hosts: Iterable[LoneAgent], count: int, memory_bytes: int = 0) -> Picked:
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
                host.stand_in_line([device.uuid for device in host.devices], count, note)
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
                host.stand_in_line((), 0, note)


async def _claim_all(picked: Picked, note: Note) -> Claimed | None:
    """Claim the chosen GPUs; if one host refuses, release the others' claims and say why."""
    for number, (host, devices) in enumerate(picked):
        claimed = await host.claim([device.uuid for device in devices], note)
        if claimed != Claimed():
            for other, some in picked[:number]:
                other.release([device.uuid for device in some])
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
