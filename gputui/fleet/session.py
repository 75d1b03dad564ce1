"""One channel to an agent: its host is made ready over it, then it is read and pinged to its end.

probing → checking → ready, and silent while no message comes. What happens goes to the host's
record and to a listener; the end is always a HostError, which says why.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from gputui.errors import ProtocolError
from gputui.fleet import checks, reachability
from gputui.fleet.addresses import bracketed, is_loopback, is_of_a_host, same_family
from gputui.fleet.deploy.opening import OpenedAgent
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.host_record import HostRecord
from gputui.fleet.stages import Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from gputui.process.background import together
from gputui.protocol import VERSION
from gputui.protocol.agent import (
    AgentEnding,
    Configure,
    Facts,
    FromAgent,
    KeepLease,
    Listen,
    Listening,
    Ping,
    Pong,
    Reach,
    Reached,
    Telemetry,
)
from gputui.protocol.outgoing import Prepared
from gputui.protocol.shared import LogLines

KEEP_LEASE = Prepared(KeepLease())
READINGS = (Pong, Reached, Listening, Telemetry, LogLines)
"""What comes all the time; everything else an agent reports is an event, or makes one."""
EVENTS_AT_ONCE = 2_000
EVENTS_PER_S = 100
"""No agent may report more: all workers of a large host start, crash and start again within it, and
with more the events of others could not be found."""


class SessionListener(Protocol):
    """Called by a session: implemented by its host."""

    async def scheduler_end(self) -> tuple[str, int]:
        """Return (address, port) of the scheduler as the host reaches it, once it is known."""

    def workers_elsewhere(self) -> tuple[str, str]:
        """Return (whose, address) of workers that this host is to reach, ("", "") for none."""

    async def blocked(self, address: str, port: int) -> str:
        """Return which way to or from this host's workers is closed; "" where all are open."""

    def overreach(self, message: FromAgent) -> str:
        """Return why a message is refused, such as for another host's worker; "" if it is not."""

    def received(self, message: FromAgent) -> None:
        """Handle a message that is no answer to a session."""


@dataclass(slots=True)
class AgentSession:
    """One connection to an agent."""

    host: Host
    settings: FleetSettings
    opened: OpenedAgent
    stages: Stages
    record: HostRecord
    listener: SessionListener
    heard_at: float = field(default_factory=time.monotonic)
    """When the agent last said something, by the monotonic clock."""
    configured: bool = False
    """Whether `Configure`, an agent's first message, was sent: only then others may be."""
    ready: bool = False
    """Whether this session came as far as ready."""
    _probed: asyncio.Future[Facts] = field(default_factory=asyncio.Future)
    _asked: dict[tuple[str, int | None], asyncio.Future[Reached | Listening]] = field(
        default_factory=dict
    )
    """By address and port, None for an order to listen: who waits for the agent's answer."""
    _events_left: float = EVENTS_AT_ONCE
    _event_at: float = 0.0
    _ending: AgentEnding | None = None

    async def attend(self) -> NoReturn:
        """Make ready, read and ping, until the first of them fails with a HostError."""
        await together(self._read(), self._ping(), self._make_ready())
        raise AssertionError("reading ends with an error only")

    async def _make_ready(self) -> None:
        """Configure the agent, check its facts, and have it try the scheduler's port."""
        await self._probe()
        await self._check()
        self.ready = True
        self.record.become(HostState.READY)

    async def _probe(self) -> None:
        ahead_s = self.opened.clock_ahead_s or 0.0
        if wrong := checks.clock_problem(ahead_s):
            raise self.stages.error(wrong.reason, wrong.hint)
        late = f"its agent started and then said nothing for {self.stages.timeout_s:g} s"
        async with self.stages.enter(HostState.PROBING, late):
            self.opened.channel.send(
                Configure(
                    version=VERSION,
                    cluster_id=self.settings.cluster_id,
                    host=self.host.name,
                    lease_s=self.settings.lease_s,
                    telemetry_interval_s=self.settings.telemetry_interval_s,
                    env=self.settings.environ + self.host.env,
                    temporary_directory=self.settings.temporary_directory,
                    cluster=self.settings.cluster,
                    frontends=self.settings.frontends() if self.host.is_local else (),
                    compressed=self.opened.compressed,
                )
            )
            if self.opened.compressed:
                self.opened.channel.decompress()
            self.configured = True
            facts = await self._probed
        clock = checks.clock_warning(ahead_s)
        found = checks.warnings(self.host, facts, self.settings)
        self.record.warn((*([clock] if clock else []), *found))
        self.record.found()

    async def _check(self) -> None:
        address, port = await self.listener.scheduler_end()
        here, there = f"{bracketed(address)}:{port}", self.opened.far_address or self.host.name
        why = f"{there} cannot reach the scheduler at {here}"
        reached = await self._reach(address, port, why, checks.PORT_HINT)
        if reached.error:
            raise self.stages.error(f"{why}: {reached.error}", checks.PORT_HINT)
        if not self.record.listen_address:
            self.record.listens(await self._find_listen_address(port, reached.local_address))

    async def _find_listen_address(self, scheduler_port: int, own_end: str) -> str:
        """Return where its workers listen, once all who are to reach them do; raises HostError.

        `own_end` is this host's end of the way to the scheduler: where it was reached may be the
        address of a machine before it, which forwards a port.
        """
        address = self.host.listen or await self._listen_address(scheduler_port)
        late = f"its agent opened no port at {address} within {self.stages.timeout_s:g} s"
        async with self.stages.enter(HostState.CHECKING, late):
            opened = await self.ask(Listen(address))
            if opened.error and not self.host.listen and is_of_a_host(own_end):
                address = own_end
                opened = await self.ask(Listen(address))
        if opened.error:
            reason = f"its workers cannot listen on {bracketed(address)}: {opened.error}"
            raise self.stages.error(reason, "listen=ADDRESS on its line names one of its addresses")
        async with self.stages.enter(HostState.CHECKING, "the ways to its workers: no answer"):
            blocked = await self.listener.blocked(address, opened.port)
        if blocked:
            raise self.stages.error(blocked, reachability.HINT)
        return address

    async def _listen_address(self, port: int) -> str:
        """Return where this host's workers listen; raises HostError.

        That is where it was reached. Where workers elsewhere listen on the other version of IP, it
        is this host's end of the way to them; any port there will do, also one that is closed.
        """
        whose, workers = self.listener.workers_elsewhere()
        there = self.opened.far_address
        if not workers or is_loopback(there) or same_family(workers, there):
            return there
        why = f"{there} cannot reach {whose} at {workers}"
        reached = await self._reach(workers.strip("[]"), port, why, checks.FAMILY_HINT)
        if not is_of_a_host(reached.local_address):
            raise self.stages.error(f"{why}: {reached.error}", checks.FAMILY_HINT)
        return reached.local_address

    async def _reach(self, address: str, port: int, why: str, hint: str) -> Reached:
        """Have the host connect to a port at an address; raises HostError without an answer."""
        async with self.stages.enter(HostState.CHECKING, f"{why}: no answer", hint):
            reached: Reached = await self.ask(Reach(address, port, self.stages.timeout_s * 0.8))
            return reached

    async def ask(self, order: Reach | Listen) -> Any:
        """Have the agent try or open a port, and return its answer; the same is asked once."""
        key = (order.host, order.port if isinstance(order, Reach) else None)
        if key not in self._asked:
            self._asked[key] = asyncio.get_running_loop().create_future()
            self.opened.channel.send(order)
        return await asyncio.shield(self._asked[key])

    async def _read(self) -> NoReturn:
        """Handle the agent's messages until the stream ends."""
        channel = self.opened.channel
        try:
            while (message := await channel.receive()) is not None:
                self.heard_at = time.monotonic()
                self._take(message)
        except ProtocolError as error:
            raise self.stages.error(str(error), stderr_tail=channel.last_log_lines) from error
        cut = await channel.stream.exit_status() != 0
        what = "the connection to its agent was cut" if cut else "its agent ended"
        if self._ending is not None:
            what = f"its agent ended: {self._ending.reason}"
        raise self.stages.error(
            what if self.ready else f"{what} before it was ready",
            stderr_tail=self._ending.log_tail if self._ending else channel.last_log_lines,
            transient=True,
        )

    def _take(self, message: FromAgent) -> None:
        if overreach := self.listener.overreach(message):
            raise self.stages.error(overreach)
        if not isinstance(message, READINGS):
            self._count_event()
        match message:
            case Pong():
                return
            case Reached() | Listening():
                port = message.port if isinstance(message, Reached) else None
                if (asked := self._asked.pop((message.host, port), None)) is not None:
                    asked.set_result(message)
                return
            case AgentEnding():
                self._ending = message
                return
            case Telemetry():
                self.record.read(message)
            case Facts():
                self.record.meet(message)
                if problem := next(checks.problems(self.host, message, self.settings), None):
                    raise self.stages.error(problem.reason, problem.hint)
                if not self._probed.done():
                    self._probed.set_result(message)
        self.listener.received(message)

    def _count_event(self) -> None:
        """Raise HostError for an agent that reports events without end."""
        now = asyncio.get_running_loop().time()
        earned = (now - self._event_at) * EVENTS_PER_S
        self._events_left = min(self._events_left + earned, EVENTS_AT_ONCE) - 1
        self._event_at = now
        if self._events_left < 0:
            raise self.stages.error(f"its agent reports more than {EVENTS_PER_S} events a second")

    async def _ping(self) -> NoReturn:
        """Keep the lease, and notice when nothing comes back."""
        interval_s, silence_s = self.settings.ping_interval_s, self.settings.silence_s
        record = self.record
        await asyncio.wait([self._probed])
        number = 0
        while (quiet_s := time.monotonic() - self.heard_at) < silence_s + interval_s:
            if quiet_s >= silence_s and record.state is HostState.READY:
                record.become(HostState.SILENT, f"no message for {quiet_s:.0f} s")
            elif quiet_s < silence_s and record.state is HostState.SILENT:
                record.become(HostState.READY)
            number += 1
            alive = quiet_s < interval_s
            self.opened.channel.send(KEEP_LEASE if alive else Ping(number))
            wait_s = min(interval_s, max(silence_s - quiet_s, interval_s / 4))
            too_long_s = await _oversleep(wait_s)
            self.heard_at = min(self.heard_at + too_long_s, time.monotonic())
        raise self.stages.error(f"no message for {quiet_s:.0f} s", transient=True)


async def _oversleep(wait_s: float) -> float:
    """Sleep, and return how much too long: what this process was held up is no host's silence."""
    due = time.monotonic() + wait_s
    await asyncio.sleep(wait_s)
    return time.monotonic() - due
