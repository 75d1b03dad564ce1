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
from typing import Any, Protocol

from gputui.errors import HostError, ProtocolError
from gputui.fleet.addresses import bracketed
from gputui.fleet.agent_channel import AgentChannel
from gputui.fleet.deploy.opening import Opener
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.host_record import HostRecord
from gputui.fleet.session import AgentSession
from gputui.fleet.stages import Question, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState, HostStatus
from gputui.process.background import Background, words
from gputui.protocol.agent import Facts, FromAgent, Listen, Reach, Shutdown, Telemetry, ToAgent

logger = logging.getLogger(__name__)

RECONNECT_S = 1.5
"""How long a connection may take while a host's workers live on: more tries fit into the lease."""
END_S = 5.0
"""How long past its own grace an agent that is to end is waited for."""


class HostListener(Protocol):
    """Called when something happens on a host: implemented by the fleet."""

    def host_changed(self, host: "FleetHost") -> None:
        """Note another state, reason or warning, or that the lease is over."""

    def workers_elsewhere(self, host: "FleetHost") -> tuple[str, str]:
        """Return (whose, address) of workers that the host is to reach, ("", "") for none."""

    async def blocked(self, host: "FleetHost", address: str, port: int) -> str:
        """Return which way to or from a host's workers is closed; "" where all are open."""

    def overreach(self, host: "FleetHost", message: FromAgent) -> str:
        """Return why a message is refused, such as for another host's worker; "" if it is not."""

    def message_received(self, host: "FleetHost", message: FromAgent) -> None:
        """Handle a message of its agent: `Facts`, `Telemetry`, `WorkerReady` and so on."""

    async def ask(self, host: "FleetHost", question: Question) -> str | None:
        """Ask a user; None for no, or without a user to ask."""


class FleetHost:
    """A host and the connection to its agent."""

    def __init__(
        self, host: Host, settings: FleetSettings, opener: Opener, listener: HostListener
    ) -> None:
        self.host = host
        self._settings = settings
        self._opener = opener
        self._listener = listener
        self.record = HostRecord(host, settings, lambda: listener.host_changed(self))
        self._session: AgentSession | None = None
        self._tasks = Background(self._failed)
        self._life: asyncio.Task[None] | None = None
        self._stopping = False
        self._losses = 0
        self._heard_at = 0.0
        self._retry_asked = asyncio.Event()
        self._scheduler: tuple[str | None, int] | None = None
        self._scheduler_known = asyncio.Event()

    @property
    def name(self) -> str:
        """The host's name, as in its workers' names."""
        return self.host.name

    @property
    def state(self) -> HostState:
        """Its state."""
        return self.record.state

    @property
    def status(self) -> HostStatus:
        """All that a snapshot says of this host; its devices as the agent reports them."""
        return self.record.status

    @property
    def facts(self) -> Facts | None:
        """The host's facts; None before its agent has answered."""
        return self.record.facts

    @property
    def telemetry(self) -> Telemetry | None:
        """The last telemetry of its agent."""
        return self.record.telemetry

    @property
    def was_ready(self) -> bool:
        """Whether it has been ready, and not failed since."""
        return self.record.was_ready

    @property
    def lease_over(self) -> bool:
        """Whether it has been lost for so long that its workers are gone."""
        return self.record.lease_over

    @property
    def scheduler_address(self) -> str:
        """`tls://host:port` of the scheduler, as this host reaches it; "" before it is known."""
        if self._scheduler is None:
            return ""
        address, port = self._scheduler_end()
        return f"tls://{bracketed(address)}:{port}"

    def start(self) -> None:
        """Begin to reach the host."""
        self._life = self._tasks.keep(self._live, f"host {self.name}")

    def scheduler_listens(self, port: int, address: str | None = None) -> None:
        """Set the scheduler's address; a host waits for that in `checking`.

        `address` is where every host reaches it; None is each host's own way to this machine.
        """
        self._scheduler = (address, port)
        self._scheduler_known.set()

    def send(self, message: ToAgent) -> bool:
        """Send to the agent; return False if none is connected (its next `Facts` tell the
        state)."""
        if self._session is None or not self._session.configured:
            return False
        self._session.opened.channel.send(message)
        return True

    def retry(self) -> None:
        """Try a failed host again, or one that is reconnecting at once."""
        self._retry_asked.set()

    async def stop(self, grace_s: float = 5.0) -> bool:
        """End the agent and its workers; return whether all have ended.

        False where it was out of reach, or did not say so in time: its lease ends it then.
        """
        self._stopping = True
        if self._life is None:
            return True
        sent = self.send(Shutdown(grace_s))
        done, _ = await asyncio.wait({self._life}, timeout=grace_s + END_S if sent else 0)
        await self._tasks.close()
        self.record.forget_lease()
        return bool(done) if sent else not self.was_ready

    def workers_elsewhere(self) -> tuple[str, str]:
        """Return (whose, address) of workers that this host is to reach, ("", "") for none."""
        return self._listener.workers_elsewhere(self)

    async def blocked(self, address: str, port: int) -> str:
        """Return which way to or from this host's workers is closed; "" where all are open."""
        return await self._listener.blocked(self, address, port)

    async def ask_agent(self, order: Listen | Reach) -> Any:
        """Have the agent try or open a port, and return its answer; TimeoutError without one."""
        if self._session is None:
            raise TimeoutError
        return await self._session.ask(order)

    def overreach(self, message: FromAgent) -> str:
        """Return why a message is refused, such as for another host's worker; "" if it is not."""
        return self._listener.overreach(self, message)

    def received(self, message: FromAgent) -> None:
        """Pass a message of its agent to the fleet."""
        self._listener.message_received(self, message)

    async def scheduler_end(self) -> tuple[str, int]:
        """Return (address, port) of the scheduler as this host reaches it, once it is known."""
        if not self._scheduler_known.is_set():
            self._entered(HostState.CHECKING, "waiting for the scheduler")
            await self._scheduler_known.wait()
        return self._scheduler_end()

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
        self.record.lost(self._heard_at + lease_s - time.monotonic())
        self.record.become(
            HostState.RECONNECTING, error.reason, error.hint, stderr_tail=error.stderr_tail
        )
        waits = self._settings.reconnect_s
        wait_s = waits[min(self._losses, len(waits) - 1)]
        if not self.record.lease_over:
            wait_s = min(wait_s, self._settings.ping_interval_s / 2)
        self._losses += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._retry_asked.wait(), wait_s)

    async def _attempt(self) -> None:
        """Connect to the host and serve its agent; ends with a HostError."""
        leased = self.was_ready and not self.lease_over
        stages = Stages(
            self.name,
            self._settings.stage_timeout_s,
            entered=self._entered,
            ask=self._ask,
            connect_s=RECONNECT_S if leased else None,
        )
        opened = await self._opener.open(self.host, stages)
        self.record.reached(opened.local_address, opened.far_address)
        session = AgentSession(self.host, self._settings, opened, stages, self.record, self)
        self._session = session
        try:
            await session.attend()
        except HostError as error:
            await self._part(opened.channel, error)
            raise
        finally:
            self._heard_at = session.heard_at
            if session.ready:
                self._losses = 0
            self._session = None
            await asyncio.shield(opened.channel.close())

    async def _part(self, channel: AgentChannel, error: HostError) -> None:
        """Leave no agent behind on a host that will not be used, or has not been ready yet."""
        if not error.transient:
            await _end(channel)
        elif not self.was_ready:
            channel.send(Shutdown(0.0))

    def _scheduler_end(self) -> tuple[str, int]:
        assert self._scheduler
        address, port = self._scheduler
        return address or self._settings.scheduler_host or self.record.local_address, port

    async def _ask(self, question: Question) -> str | None:
        return await self._listener.ask(self, question)

    def _entered(self, state: HostState, reason: str = "") -> None:
        """Show a stage of the first connection; a later one is all `reconnecting`."""
        if not self.was_ready:
            self.record.become(state, reason)

    def _failed(self, what: str, error: Exception) -> None:
        """Show the host as failed: nothing reaches for it any more."""
        self._fail(HostError(self.name, self.state, words(error)))

    def _fail(self, error: HostError) -> None:
        if self.was_ready:
            self.record.lost(0.0)
        self.record.become(
            HostState.FAILED,
            error.reason,
            error.hint,
            stderr_tail=error.stderr_tail,
            failed_stage=str(error.stage),
        )


async def _end(channel: AgentChannel) -> None:
    """Have the agent of a host that will not be used end, rather than wait for its lease."""
    channel.send(Shutdown(0.0))
    with contextlib.suppress(TimeoutError, ProtocolError):
        async with asyncio.timeout(END_S):
            while await channel.receive() is not None:
                continue
