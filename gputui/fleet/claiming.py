"""Hold claims on GPUs of several hosts: those that are free, all of them or none."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.errors import ClusterError
from gputui.model.hosts import Host
from gputui.model.plain_text import safe, span
from gputui.model.readings import DeviceReading, Note, Wanted, is_free, queue_lines
from gputui.process.background import within
from gputui.protocol.agent import Claimed, ClaimGpus, EndClaims, ReleaseGpus, StandInLine, ToAgent

LOOK_S = 0.5
"""How often one who waits looks for free GPUs."""
STAND = "add --wait 2h to stand in line"
BEFORE = "another run of this cluster waited first"
GRANTED = Claimed(0)
LEAVE = StandInLine(0, (), 0, Note())
CLAIMED_S = 10.0
"""How long an agent may take to answer a claim."""


class HostClaims:
    """The GPUs of one host, and the claims that its agent makes on them."""

    def __init__(
        self,
        host: Host,
        send: Callable[[ToAgent], object],
        ask: Callable[[ClaimGpus | StandInLine, float], Awaitable[Claimed | None]],
    ) -> None:
        """Send orders by `send` and `ask`.

        Its owner sets `devices`, `lost` and `over`, and tells of its agent by `met`.
        """
        self.name = host.name
        self.most = host.free_gpus
        """How many its line gives; 0 for any number."""
        self.devices: tuple[DeviceReading, ...] = ()
        """Those that may be used, as they were read last."""
        self.no_gpu = ""
        """Why there are none; "" where there are some, or none are wanted."""
        self.lost = ""
        """Why the agent is gone; "" while it runs."""
        self.over: str | None = None
        """Why a claim here has ended: who has one of its GPUs, "" for the end of its process."""
        self.taken: dict[str, Held] = {}
        """UUID → who has it of this agent, or asks for it; readings show that a moment later."""
        self.line = asyncio.Lock()
        """Held by who waits: the agent has one ticket, so the next one's would replace it."""
        self.in_line = False
        """Whether its agent has a place in line."""
        self.no_place = ""
        """Why it has none."""
        self._waits = False
        """Whether it was asked for one."""
        self._agent_pid = 0
        self._send, self._ask_agent = send, ask

    async def claim_for(self, pid: int, note: Note) -> "Held":
        """Claim the GPUs that a process uses, until it ends; raises ClusterError."""
        used = tuple(d for d in self.devices if any(each.pid == pid for each in d.processes))
        if not used:
            raise ClusterError(f"{self.name}: process {pid} uses no GPU there; see gputui who")
        held = await self.claim(used, note, pid)
        if isinstance(held, Claimed):
            others = "its GPUs are claimed already; see gputui who"
            raise ClusterError(f"{self.name}: {held.error or others}")
        return held

    def end(self, uuids: Collection[str]) -> None:
        """End this user's processes that do nothing but hold these."""
        self._send(EndClaims(0, tuple(uuids)))

    async def claim(
        self, devices: tuple[DeviceReading, ...], note: Note, pid: int | None = None
    ) -> "Held | Claimed":
        """Claim all of these or none; with `pid`, until that process ends.

        Returns them as held, or the answer that refuses them.
        """
        uuids = tuple(device.uuid for device in devices)
        if others := self.taken.keys() & {*uuids}:
            return Claimed(0, tuple(others))
        held, claimed = Held(self, devices), None
        self.taken |= dict.fromkeys(uuids, held)
        try:
            claimed = await self._ask(ClaimGpus(0, uuids, note, pid))
        finally:
            if claimed != GRANTED:
                held.release()  # the agent may claim them without an answer
        return held if claimed == GRANTED else claimed

    async def _ask(self, order: ClaimGpus | StandInLine) -> Claimed:
        claimed = None if self.lost else await self._ask_agent(order, CLAIMED_S)
        if claimed is None:
            return Claimed(0, error=self.lost or "its agent does not answer")
        return replace(claimed, request=0)

    def release(self, uuids: Iterable[str]) -> None:
        """End claims."""
        for uuid in (released := tuple(uuids)):
            self.taken.pop(uuid, None)
        self._send(ReleaseGpus(0, released))

    async def stand_in_line(self, uuids: Collection[str], gpus: int, note: Note, place: int) -> int:
        """Wait for so many of these at a place in line, 0 for after everybody who waits already.

        Returns the place; 0 where its agent gave none, and `no_place` says why.
        """
        self._waits, self.in_line, asked = True, False, self._agent_pid
        stood = await self._ask(StandInLine(0, tuple(uuids), gpus, note, place))
        self.no_place = stood.error
        if stood.place and asked == self._agent_pid:
            self.in_line = True
        else:
            self._send(LEAVE)  # the agent may stand there without an answer
        return stood.place

    def met(self, agent_pid: int) -> None:
        """Take note of the agent that answers.

        One that is reached again releases what was released during the cut. What another one held
        has ended with it.
        """
        if agent_pid == self._agent_pid:
            self.release({device.uuid for device in self.devices} - self.taken.keys())
            if not self._waits:
                self.leave_line()
        else:
            self._agent_pid, self.in_line = agent_pid, False
            self.taken.clear()

    def leave_line(self) -> None:
        """Wait no more."""
        self._waits = self.in_line = False
        self.no_place = ""
        self._send(LEAVE)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """GPUs that a host's agent has granted, until they are released or the agent ends."""

    host: HostClaims
    devices: tuple[DeviceReading, ...]

    @property
    def uuids(self) -> frozenset[str]:
        """Those that are still held."""
        taken = self.host.taken
        return frozenset(each.uuid for each in self.devices if taken.get(each.uuid) is self)

    @property
    def lasts(self) -> bool:
        """Whether all are still held."""
        return len(self.uuids) == len(self.devices)

    def release(self) -> None:
        """End the claim, and no other on these GPUs."""
        self.host.release(self.uuids)


Picked = list[tuple[HostClaims, tuple[DeviceReading, ...]]]
"""GPUs to claim, by host."""


def pick_free(hosts: Sequence[HostClaims], wanted: Wanted, without: Collection[str] = ()) -> Picked:
    """Return GPUs that are free, of as few hosts as possible; [] where there are too few."""
    free = _free(hosts, wanted, without)
    if not wanted.count:
        return free if _sum(free) == _number(hosts, wanted) else []
    if enough := [each for each in free if len(each[1]) >= wanted.count]:
        host, devices = min(enough, key=lambda each: len(each[1]))
        return [(host, devices[: wanted.count])]
    picked, left = [], wanted.count
    for host, devices in sorted(free, key=lambda each: -len(each[1])):
        if left:
            picked.append((host, devices[:left]))
            left -= len(devices[:left])
    return [] if left else picked


def _free(hosts: Sequence[HostClaims], wanted: Wanted, without: Collection[str] = ()) -> Picked:
    """Return those of each host's GPUs that are free, and not this cluster's already."""
    taken = {*without, *(uuid for host in hosts for uuid in host.taken)}

    def fits(device: DeviceReading, wanted: Wanted) -> bool:
        return device.uuid not in taken and _will_do(device, wanted)

    return _fitting(hosts, wanted, fits)


def _fitting(
    hosts: Iterable[HostClaims], wanted: Wanted, fits: Callable[[DeviceReading, Wanted], bool]
) -> Picked:
    """Return those of each host's GPUs that fit, as many as may be taken of it."""
    found = []
    for host in hosts:
        devices = tuple(device for device in host.devices if fits(device, wanted))
        devices = devices[: host.most or None][: wanted.per_host or None]
        if len(devices) >= max(1, wanted.per_host) and not host.lost:
            found.append((host, devices))
    return found


def _sum(picked: Picked) -> int:
    return sum(len(devices) for _, devices in picked)


def _number(hosts: Iterable[HostClaims], wanted: Wanted) -> int:
    return wanted.count or sum(host.most for host in hosts if not host.lost)


def _could_do(device: DeviceReading, wanted: Wanted) -> bool:
    enough = (device.memory_total_bytes or 0) >= wanted.memory_bytes
    return enough and not (wanted.whole and device.is_mig)


def _will_do(device: DeviceReading, wanted: Wanted) -> bool:
    memory_free = (device.memory_total_bytes or 0) - (device.memory_used_bytes or 0)
    return is_free(device) and _could_do(device, wanted) and memory_free >= wanted.memory_bytes


async def hold(
    hosts: Sequence[HostClaims],
    wanted: Wanted,
    note: Callable[[], Note],
    waiting: Callable[[str], None] = lambda why: None,
    until: float | None = None,
) -> list[Held]:
    """Claim free GPUs, all or none; wait in line for them at most `wanted.wait_s`.

    A wait that has begun before ends at `until`, by the monotonic clock. Returns GPUs by host. Over
    several hosts in the order of their names, and with a pause that differs from one to the next,
    so that two who wait do not each keep a part. `note` is called for a claim that begins now,
    `waiting` with why it waits. Raises ClusterError.
    """
    count = _number(hosts, wanted)
    if count > (there := _sum(_fitting(hosts, wanted, _could_do))):
        found = _counted(there, wanted, "on these hosts")
        words = (f"too few GPUs: {_asked(hosts, wanted)}, {found}", *_without(hosts))
        raise ClusterError(safe("; ".join(words)))
    until = time.monotonic() + wanted.wait_s if until is None else until
    async with contextlib.AsyncExitStack() as lines:
        in_order = sorted(hosts, key=lambda host: host.name) if until > time.monotonic() else []
        for host in in_order:
            if host.line.locked():
                waiting(f"{host.name}: {BEFORE}")
            turn = lines.enter_async_context(host.line)
            if not await within(until - time.monotonic(), turn):
                raise ClusterError(f"{host.name}: {BEFORE}")
            lines.callback(host.leave_line)
        place = 0
        while True:
            place = await _stand(in_order, wanted, count, note(), place)
            held, refused = await _claim_free(hosts, wanted, note())
            if held:
                return held
            why = _why_not(hosts, wanted, refused)
            if time.monotonic() > until:
                able = [each for each in hosts if not refused.get(each.name, GRANTED).error]
                hint = (
                    f"the wait of {span(wanted.wait_s, fine=True)} is over"
                    if wanted.wait_s
                    else STAND * (count <= _sum(_fitting(able, wanted, _could_do)))
                )
                raise ClusterError(f"{why}\n  {hint}".rstrip())
            waiting(why)
            await asyncio.sleep(LOOK_S * (0.5 + random.random()))


async def _stand(
    hosts: Iterable[HostClaims], wanted: Wanted, count: int, note: Note, place: int
) -> int:
    """Stand in the lines of hosts that could give GPUs, where no agent has a ticket yet.

    All tickets have one place, which is returned: after all who stand in any of these lines. So of
    two who wait the same comes first everywhere, in whatever order their tickets come to the hosts.
    """

    async def stand(host: HostClaims, place: int) -> int:
        uuids = [device.uuid for device in host.devices if _could_do(device, wanted)]
        return await host.stand_in_line(uuids, min(count, host.most or count), note, place)

    able = [host for host, _ in _fitting(hosts, wanted, _could_do)]
    new = [host for host in able if not host.in_line]
    places = await asyncio.gather(*(stand(host, place) for host in new))
    last = max([place, *places])
    before = [host for host, each in zip(new, places, strict=True) if 0 < each < last]
    await asyncio.gather(*(stand(host, last) for host in before))
    return last


async def _claim_free(
    hosts: Sequence[HostClaims], wanted: Wanted, note: Note
) -> tuple[list[Held], dict[str, Claimed]]:
    """Claim free GPUs, others in place of those that are refused, until no others fit.

    Returns them, or [] and what each host answered that refused any.
    """
    refused, without = dict[str, Claimed](), set[str]()
    while picked := pick_free(hosts, wanted, without):
        picked.sort(key=lambda each: each[0].name)
        held = list[Held]()
        with contextlib.ExitStack() as undo:
            for host, devices in picked:
                claimed = await host.claim(devices, note)
                if isinstance(claimed, Claimed):
                    uuids = {device.uuid for device in devices}
                    before = refused.get(host.name, GRANTED)
                    refused[host.name] = replace(
                        claimed,
                        held=before.held + claimed.held,
                        ahead=claimed.ahead or before.ahead,
                    )
                    without |= uuids & {*claimed.held} or uuids
                    without |= {
                        each.uuid
                        for each in host.devices
                        if claimed.error or (claimed.ahead and each.waiting)
                    }
                    break
                undo.callback(claimed.release)
                held.append(claimed)
            else:
                if all(each.lasts and not each.host.lost for each in held):
                    undo.pop_all()
                    return held, {}
    return [], refused


def _asked(hosts: Sequence[HostClaims], wanted: Wanted) -> str:
    """Describe what was asked for.

    >>> _asked([], Wanted(4)), _asked([], Wanted(4, 2, 70 * 2**30))
    ('4 asked for', '4 asked for (2 of each host, 70 GiB free on each)')
    """
    count, instances = _number(hosts, wanted), any(d.is_mig for h in hosts for d in h.devices)
    terms = [f"{wanted.per_host} of each host"] * (wanted.per_host not in (0, count))
    terms += [f"{wanted.memory_bytes / 2**30:,.0f} GiB free on each"] * bool(wanted.memory_bytes)
    terms += ["no MIG instances: CUDA gives a process one"] * (wanted.whole and instances)
    return f"{count} asked for" + (f" ({', '.join(terms)})" if terms else "")


def _counted(number: int, wanted: Wanted, which: str) -> str:
    """Describe how many there are.

    >>> _counted(2, Wanted(4), "free"), _counted(0, Wanted(4, 4), "free")
    ('2 free', 'no host has 4 free')
    """
    if number or wanted.per_host < 2:
        return f"{number} {which}"
    return f"no host has {wanted.per_host} {which}".removesuffix(" on these hosts")


def _without(hosts: Iterable[HostClaims]) -> list[str]:
    """Describe why hosts have no GPU that may be used."""
    return [f"{each.name}: {each.no_gpu}" for each in hosts if each.no_gpu and not each.devices]


def _why_not(hosts: Sequence[HostClaims], wanted: Wanted, refused: Mapping[str, Claimed]) -> str:
    """Describe why GPUs cannot be had now; no moment is in the first line."""
    lines = [f"{name}: {why}" for name, each in refused.items() if (why := _refusal(each))]
    there = [host for host in hosts if not refused.get(host.name, GRANTED).error and not host.lost]
    devices = [(host.name, device) for host in there for device in host.devices]
    queue = queue_lines(devices, time.time())
    if any(each.ahead for each in refused.values()):
        return "\n".join([*lines, *queue])
    held = {uuid for each in refused.values() for uuid in each.held}
    before = dict.fromkeys(name for _, d in devices for name in d.waiting[: d.ahead])
    free = _counted(_sum(_free(there, wanted, held)), wanted, "free")
    words = [f"too few free GPUs: {_asked(hosts, wanted)}, {free}", *_without(there)]
    words += [f"before you: {', '.join(before)}"] * bool(before)
    words += [f"{each.name}: no place in line: {each.no_place}" for each in there if each.no_place]
    words += [f"{each.name} does not answer" for each in hosts if each.lost]
    return "\n".join([safe("; ".join(words)), *lines, *queue])


def _refusal(claimed: Claimed) -> str:
    """Describe why a host refused a claim; "" for GPUs that are held.

    >>> _refusal(Claimed(0, ahead=("alice", "bob"))), _refusal(Claimed(0, held=("GPU-0",)))
    ('alice, bob waited first', '')
    """
    return claimed.error or (f"{', '.join(claimed.ahead)} waited first" if claimed.ahead else "")
