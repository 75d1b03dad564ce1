"""One host of the fleet: from a line of the hosts file to a ready agent, and kept there.

resolving → connecting → authenticating → probing → checking → ready; then silent →
reconnecting for as long as it takes, or failed with its reason and hint until `retry()`.
Each attempt that comes as far as a channel is an `AgentSession`. A failure here is a state of this
host and never an exception that others see.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gputui.errors import HostError
from gputui.fleet import checks
from gputui.fleet.addresses import LOOPBACK, bracketed
from gputui.fleet.checks import Finding, Verdict
from gputui.fleet.claiming import HostClaims
from gputui.fleet.deploy.start_agent import Opener
from gputui.fleet.session import END_S, OUTPUT_COUNTS, AgentSession, OpenedAgent, Order, end
from gputui.fleet.stages import FleetSettings, Question, Stages
from gputui.fleet.tunnel import Tunnel
from gputui.model.bounds import LAST_LINES
from gputui.model.examination import ExaminedHost
from gputui.model.hosts import Host
from gputui.model.plain_text import safe
from gputui.model.plan import HostCapacity, WorkerSpec
from gputui.model.snapshot import AWAY, HostState, HostStatus
from gputui.process.background import Background, within, words
from gputui.protocol.agent import (
    ClaimEnded,
    Examine,
    Facts,
    FromAgent,
    HostExamined,
    Shutdown,
    StartWorkers,
    Telemetry,
    ToAgent,
)

logger = logging.getLogger(__name__)

RECONNECT_S = 1.5
"""How long a connection may take while a host's workers live on: more tries fit into the lease."""


ON_THE_WAY = (
    HostState.RESOLVING,
    HostState.CONNECTING,
    HostState.AUTHENTICATING,
    HostState.PROBING,
    HostState.CHECKING,
)


class FleetHost:
    """A host, its state, and the connection to its agent."""

    def __init__(
        self,
        host: Host,
        settings: FleetSettings,
        opener: Opener,
        owners: Mapping[str, str],
        scheduler_port: asyncio.Future[int],
        scheduler_wanted: asyncio.Event,
        *,
        changed: Callable[["FleetHost", bool], None],
        received: Callable[["FleetHost", FromAgent], None],
        find_ways: Callable[["FleetHost", AgentSession, int], Awaitable[None]],
        ask: Callable[[str, Question], Awaitable[str | None]],
    ) -> None:
        """Begin to reach the host; once `scheduler_wanted`, it waits in `checking` for its port.

        What its agent says of GPUs that `owners`, GPU → host, gives to others is refused. `changed`
        is called with another state, reason or warning, or where the lease is over, and with
        whether the state is another; `received` with messages of its agent; `ask` asks a
        user, None for no.
        """
        self.host = host
        self.name = host.name
        """As in its workers' names."""
        self.facts: Facts | None = None
        """None before its agent has answered."""
        self.telemetry: Telemetry | None = None
        self.capacity: HostCapacity | None = None
        """What this cluster may use of it; None before its agent has answered."""
        self.local_address = ""
        """Where the host reaches this machine: this end of the SSH connection."""
        self.far_address = ""
        """Where others reach the host: the far end of it. 127.0.0.1 for this machine."""
        self.listen_address = ""
        """Where its workers listen: there, at an address of its own, or as its line says."""
        self.tunnel: Tunnel | None = None
        """Leads to its workers through SSH, where no other way is open."""
        self.settled = asyncio.Event()
        """Set once it is known whether its workers need that, or that it has none."""
        self.was_ready = False
        """Whether it has been ready, and not failed since."""
        self.lease_over = False
        """Whether it has been lost for so long that its workers are gone."""
        self.claims = HostClaims(host, self.send, self.ask_agent)
        self.clock: Finding | None = None
        """Of its clock against ours; None before it is read."""
        self.dropped = 0
        """Connections that its sshd dropped before it took one."""
        self._settings = settings
        self._opener = opener
        self._changed, self._message_received = changed, received
        self._find_ways, self._ask = find_ways, ask
        self._owners = owners
        self._status = HostStatus(host.name, HostState.RESOLVING, time.time(), by_hand=host.by_hand)
        self._lease_timer: asyncio.TimerHandle | None = None
        self._session: AgentSession | None = None
        self._stopping = False
        self._losses = 0
        self._heard_at = 0.0
        self._retry_asked = asyncio.Event()
        self._scheduler_port = scheduler_port
        self._scheduler_wanted = scheduler_wanted
        self._tasks = Background(self._failed)
        self._life = self._tasks.keep(self._live, f"host {self.name}")

    @property
    def state(self) -> HostState:
        """Its state."""
        return self._status.state

    @property
    def status(self) -> HostStatus:
        """All that a snapshot says of this host; its devices as the agent reports them."""
        telemetry, status = self.telemetry, replace(self._status, address=self.far_address)
        if telemetry is None:
            return replace(status, devices=self.facts.devices if self.facts else ())
        return replace(
            status, reading=telemetry.host, read_at=telemetry.at, devices=telemetry.devices
        )

    @property
    def agent_pid(self) -> int:
        """The pid of its agent there; 0 before that has answered."""
        return self.facts.agent_pid if self.facts else 0

    @property
    def scheduler_address(self) -> str:
        """`tls://host:port` of the scheduler, as this host reaches it; "" before it is known."""
        if not self._scheduler_port.done():
            return ""
        if self.tunnel is not None:
            return f"tls://{LOOPBACK}:{self.tunnel.scheduler_port}"
        return f"tls://{bracketed(self.scheduler_host)}:{self._scheduler_port.result()}"

    @property
    def scheduler_host(self) -> str:
        """Where the scheduler is, as this host reaches it without a tunnel."""
        return self._settings.scheduler_host or self.local_address

    def send(self, message: ToAgent) -> bool:
        """Send to the agent; return False if none is connected (its next `Facts` tell the
        state)."""
        if self._session is None or not self._session.configured:
            return False
        self._session.channel.send(message)
        return True

    def start_workers(self, specs: tuple[WorkerSpec, ...], listen_host: str) -> bool:
        """Have the agent start workers that listen there; return False as `send` does."""
        ports, contact = self.host.ports, bracketed(self.host.contact)
        if self.tunnel is not None:
            ports, contact = self.tunnel.ports, ""
        return self.send(StartWorkers(specs, self.scheduler_address, listen_host, ports, contact))

    def took_output(self, characters: int) -> None:
        """Read on, though the agent sends much: this output of a program was waited for."""
        if self._session is not None:
            self._session.channel.allow(int(characters * (1 - OUTPUT_COUNTS)))

    async def ask_agent(self, order: Order, bound_s: float) -> Any:
        """Ask the agent, and return its answer; None without one in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                return self._session and await self._session.ask(order)

    async def examine(self, bound_s: float) -> ExaminedHost | None:
        """Have the agent examine its workers; None where it does not answer in time."""
        examined: HostExamined | None = await self.ask_agent(Examine(0), bound_s)
        return replace(examined.host, host=self.name) if examined else None

    def retry(self) -> None:
        """Try a failed host again, or one that is reconnecting at once."""
        self._retry_asked.set()

    async def stop(self, grace_s: float = 5.0) -> bool:
        """End the agent and its workers; return whether all have ended.

        False where it was out of reach, or did not say so in time: its lease ends it then.
        """
        self._stopping = True
        self.settled.set()
        sent, was_ready = self.send(Shutdown(grace_s)), self.was_ready
        done, _ = await asyncio.wait({self._life}, timeout=grace_s + END_S if sent else 0)
        await self._tasks.close()
        self._forget_lease()
        return bool(done) if sent else not was_ready

    async def _live(self) -> None:
        """Reach the host, keep it, and reach it again, until it is stopped."""
        while not self._stopping:
            try:
                await self._attempt()
            except HostError as error:
                await self._after(error)
            except Exception as error:
                logger.exception("%s: reaching it failed unexpectedly", self.name)
                await self._after(HostError(self.name, self.state, words(error)))

    async def _attempt(self) -> None:
        """Connect to the host and serve its agent; ends with a HostError."""
        stages = Stages(
            self.name,
            self._settings.stage_timeout_s,
            entered=self._entered,
            ask=partial(self._ask, self.name),
            connect_s=RECONNECT_S if self.was_ready and not self.lease_over else None,
        )
        opened = await self._opener.open(self.host, stages)
        self.dropped = stages.dropped
        if opened.far_address != self.far_address:
            self.listen_address, self.tunnel = "", None
        self.local_address, self.far_address = opened.local_address, opened.far_address
        session = AgentSession(opened, stages, self._settings, self._received, self._quiet)
        self._session = session
        try:
            await session.attend(self._make_ready(session, opened))
        except HostError as error:
            if not error.transient:
                await end(opened.channel)
            elif not self.was_ready:
                session.channel.send(Shutdown(0.0))
            raise
        finally:
            self._heard_at = session.heard_at
            if session.ready:
                self._losses = 0
            self._session = None
            await asyncio.shield(opened.channel.close())
            if opened.connection is not None:
                await asyncio.shield(opened.connection.close())

    async def _make_ready(self, session: AgentSession, opened: OpenedAgent) -> None:
        """Configure the agent, check its facts, and have it try the ways that workers need."""
        stages, settings = session.stages, self._settings
        clock = self.clock = checks.clock(self.host, opened.clock_ahead_s)
        if clock.verdict is Verdict.BAD:
            raise stages.error(clock.text, clock.hint)
        late = f"its agent started and then said nothing for {stages.timeout_s:g} s"
        async with stages.enter(HostState.PROBING, late):
            facts = await session.configure(
                self.host,
                temporary_directory=settings.temporary_directory,
                cluster=settings.cluster,
                promised_until=settings.promised_until,
                workers_wanted=self._scheduler_wanted.is_set(),
                frontends=settings.frontends() if self.host.is_local else (),
            )
        self._warn(facts, clock)
        self._forget_lease()
        self.lease_over = False
        if not self._scheduler_wanted.is_set():
            session.ready = True
            self._become(HostState.READY)
            await self._scheduler_wanted.wait()
            self._check(facts, stages)
            self._warn(facts, clock)
            self.was_ready = False
        if not self._scheduler_port.done():
            self._entered(HostState.CHECKING, "waiting for the scheduler")
        port = await asyncio.shield(self._scheduler_port)
        await self._find_ways(self, session, port)
        self.settled.set()
        session.ready = True
        self._become(HostState.READY)

    def _received(self, message: FromAgent) -> None:
        """Keep what an agent says of its host, and pass it on; raises HostError for a lie."""
        assert self._session
        if wrong := checks.overreach(self.name, message, self.facts, self._owners):
            raise self._session.stages.error(wrong)
        match message:
            case Telemetry():
                self.telemetry = message
                self.claims.devices = checks.chosen_devices(self.host, message.devices)
            case ClaimEnded(why):
                self.claims.over = why
            case Facts():
                if twin := checks.same_machine(self.host, message, self._owners):
                    raise self._session.stages.error(twin, "remove one of the two lines")
                self.facts = message
                self.claims.devices = checks.chosen_devices(self.host, message.devices)
                found = checks.gpus(self.host, message, self._settings)
                lacks = found.verdict is Verdict.BAD and not self.claims.devices
                self.claims.no_gpu = found.text if lacks else ""
                self.claims.met(message.agent_pid)
                self.capacity = checks.capacity(self.host, message, self._settings)
                if self._scheduler_wanted.is_set():
                    self._check(message, self._session.stages)
        self._message_received(self, message)

    def _warn(self, facts: Facts, clock: Finding) -> None:
        """Keep the warnings about the host; those of its workers only once it is to have some."""
        workers = self._scheduler_wanted.is_set()
        found = [clock.text] if clock.verdict is Verdict.DOUBTFUL else []
        found += checks.warnings(self.host, facts, self._settings, workers=workers)
        self._status = replace(self._status, warnings=tuple(map(safe, found)))

    def warn(self, text: str) -> None:
        """Show another warning; the first ones stay."""
        warnings = dict.fromkeys((*self._status.warnings, safe(text)))
        self._status = replace(self._status, warnings=(*warnings,)[:LAST_LINES])

    def _check(self, facts: Facts, stages: Stages) -> None:
        """Raise HostError where the host can run no worker."""
        for found in checks.examine(self.host, facts, self._settings):
            if found.verdict is Verdict.BAD:
                raise stages.error(found.text, found.hint)

    def _quiet(self, quiet_s: float) -> None:
        """Be silent while nothing comes, and ready again."""
        silent = quiet_s >= self._settings.silence_s
        if silent and self.state is HostState.READY:
            self._become(HostState.SILENT, f"no message for {quiet_s:.0f} s")
        elif not silent and self.state is HostState.SILENT:
            self._become(HostState.READY)

    async def _after(self, error: HostError) -> None:
        """Wait until another attempt is due, in the state that fits."""
        if self._stopping:
            return
        self._retry_asked.clear()
        if not (self.was_ready and error.transient):
            self._fail(error)
            await self._retry_asked.wait()
            return
        lease_s = self._settings.lease_s + self._settings.ping_interval_s
        self._lose(self._heard_at + lease_s - time.monotonic())
        self._become(HostState.RECONNECTING, error.reason, error.hint, error.stderr_tail)
        wait_s = self._settings.reconnect_s[: self._losses + 1][-1]
        if not self.lease_over:
            wait_s = min(wait_s, self._settings.ping_interval_s / 2)
        self._losses += 1
        await within(wait_s, self._retry_asked.wait())

    def _entered(self, state: HostState, reason: str = "") -> None:
        """Show a stage of the first connection; a later one is all `reconnecting`."""
        if not self.was_ready:
            self._become(state, reason)

    def _failed(self, what: str, error: Exception) -> None:
        """Show the host as failed: nothing reaches for it any more."""
        self._fail(HostError(self.name, self.state, words(error)))

    def _fail(self, error: HostError) -> None:
        self.settled.set()
        if self.was_ready:
            self._lose(0.0)
        if self.tunnel is not None:
            self.tunnel, self.listen_address = None, ""
        self._become(
            HostState.FAILED, error.reason, error.hint, error.stderr_tail, str(error.stage)
        )

    def _become(
        self,
        state: HostState,
        reason: str = "",
        hint: str = "",
        stderr_tail: tuple[str, ...] = (),
        failed_stage: str = "",
    ) -> None:
        """Change the state, and what a `HostStatus` says of it."""
        if state in (HostState.READY, HostState.FAILED):
            self.was_ready = state is HostState.READY
        if state is HostState.READY:
            self.claims.lost = ""
        elif state in AWAY or state is HostState.FAILED:
            self.claims.lost = reason
        another = state is not self.state
        since = time.time() if another else self._status.state_since
        self._status = replace(
            self._status,
            state=state,
            state_since=since,
            reason=reason,
            hint=hint,
            stderr_tail=stderr_tail,
            failed_stage=failed_stage,
        )
        self._changed(self, another)

    def _lose(self, lease_left_s: float) -> None:
        """Note that nothing reaches the agent, which ends its workers when its lease is over."""
        if self._lease_timer is None and not self.lease_over:
            self._lease_timer = asyncio.get_running_loop().call_later(
                max(lease_left_s, 0.0), self._end_lease
            )

    def _forget_lease(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    def _end_lease(self) -> None:
        self.lease_over = True
        self._changed(self, False)
