"""The channel to one agent, and a session: it is read and pinged to its end, always a HostError.

A channel goes over any stream that carries the bytes of the agent's relay; what a login shell
prints before the stream's marker is skipped. `LocalStream` is the relay as a child of this process;
the one over SSH is in `ssh/connection.py`. What an agent says goes to its host; what answers an
order goes to the one who gave it.
"""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from gputui.errors import ProtocolError
from gputui.fleet.stages import FleetSettings, Stages
from gputui.model.bounds import LAST_LINES, Line, Moment, Name
from gputui.model.frozen import frozen
from gputui.model.hosts import Host
from gputui.process.background import together
from gputui.process.child import Child
from gputui.protocol.agent import (
    AgentEnding,
    Claimed,
    ClaimGpus,
    Configure,
    Examine,
    Facts,
    FromAgent,
    HostExamined,
    KeepLease,
    Listen,
    Listening,
    Ping,
    Pong,
    Reach,
    Reached,
    Shutdown,
    StandInLine,
    Telemetry,
    ToAgent,
)
from gputui.protocol.programs import BytesTaken, FolderTaken, ProgramOutput, SendFolder
from gputui.protocol.shared import LogLines, Numbered
from gputui.protocol.streams import ByteStream, SocketStream
from gputui.protocol.typed_codec import TypedChannel

READ_BYTES = 2**16
EXIT_S = 1.0
"""How long a command may take to end after its stream did."""
BYTES_PER_S = 2**22
"""No agent is read faster: telemetry, and four sendings of log lines a second of each worker."""
OUTPUT_COUNTS = 1 / 8
"""How much of its bytes output of a program counts, which comes only as fast as somebody takes
it."""
END_S = 5.0
"""How long past its own grace an agent that is to end is waited for."""
READINGS = (Pong, Numbered, Telemetry, LogLines, ProgramOutput, BytesTaken)
"""What comes all the time; everything else an agent reports is an event, or makes one."""
Order = Reach | Listen | SendFolder | Examine | ClaimGpus | StandInLine
ANSWERS: dict[type, type] = {
    Reach: Reached,
    Listen: Listening,
    SendFolder: FolderTaken,
    Examine: HostExamined,
    ClaimGpus: Claimed,
    StandInLine: Claimed,
}
"""Order → what answers it."""
EVENTS_AT_ONCE = 2_000
EVENTS_PER_S = 100
"""No agent may report more: all workers of a large host start, crash and start again within it, and
with more the events of others could not be found."""


class CommandStream(ByteStream, Protocol):
    """A command's stdin and stdout, and what it wrote on stderr."""

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""

    async def exit_status(self) -> int | None:
        """Return how the command on the other end ended; None where that is not known."""


class Forwarding(Protocol):
    """An SSH connection that forwards ports, of the loopback addresses of its two ends."""

    @property
    def is_lost(self) -> bool:
        """Whether it is closed, by either end."""

    async def forward_port(self, host: str, port: int) -> int:
        """Return a port here that leads to one that the other end sees; raises OSError."""

    async def forward_back(self, port: int) -> int:
        """Return a port there that leads to one here; raises OSError."""

    async def forward_same(self, ports: Collection[int], *, back: bool) -> None:
        """Have ports here, or `back` ports there, lead to the same at the other end.

        Raises OSError.
        """

    async def close(self) -> None:
        """Forward no more."""


class HostConnection(Protocol):
    """What every way to reach a host opens: over SSH, or as a step of a Slurm job."""

    local_address: str
    """Where the host reaches this machine; "" where only the host knows."""
    far_address: str
    """Where others reach the host; "" where only the host knows."""

    @property
    def forwarding(self) -> Forwarding | None:
        """Itself, where it forwards ports."""

    async def run(self, command: str) -> CommandStream:
        """Have a shell there run a command; raises OSError where it cannot be started."""

    async def close(self) -> None:
        """Close the connection."""


class AgentChannel(TypedChannel[ToAgent, FromAgent]):
    """Messages to and from one agent."""

    stream: CommandStream

    def __init__(self, stream: CommandStream) -> None:
        super().__init__(stream, FromAgent, bytes_per_s=BYTES_PER_S)

    @property
    def last_log_lines(self) -> tuple[str, ...]:
        """The last lines that the other end printed in place of messages."""
        return (*self.banner, *self.stream.stderr_tail)[-LAST_LINES:]


@frozen
class Greeting:
    """What `loader.py` says of a host before the agent starts; hosts may lie."""

    python: Line
    version: Name
    send: bool
    """Whether the pack is not there."""
    address: Name
    """The host's end of the SSH connection, and ours, as it sees them; "" for unknown."""
    client: Name
    time: Moment


@frozen
class OpenedAgent:
    """A channel that has shown its marker, and the addresses of its two ends."""

    channel: AgentChannel
    local_address: str
    far_address: str
    clock_ahead_s: float = 0.0
    """How far the host's clock is ahead of ours."""
    connection: Forwarding | None = None
    """None for an agent of this machine, and where the way to it forwards no ports."""


class LocalStream:
    """The stdin and stdout of a command on this machine, in a session of its own.

    Ctrl-C in the terminal does not reach it.
    """

    def __init__(self, child: Child, pipes: SocketStream) -> None:
        self._child = child
        self._pipes = pipes
        self.read = pipes.read
        self.write = pipes.write
        self.drain = pipes.drain
        self.abort = pipes.abort

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str]) -> "LocalStream":
        """Start the command in this environment; raises OSError when it cannot be."""
        child = Child(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            own_session=True,
        )
        return cls(child, await child.stream())

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""
        return self._child.last_log_lines

    async def exit_status(self) -> int | None:
        """Return the exit status once it has ended; None if it goes on for a second."""
        return await self._child.wait(EXIT_S)

    async def close(self) -> None:
        """Close stdin, which ends a relay; kill it if it stays."""
        await self._pipes.close()
        await self._child.end(EXIT_S, ask=None)


async def end(channel: AgentChannel) -> None:
    """Have an agent that is not wanted end, and wait for that, rather than for its lease."""
    channel.send(Shutdown(0.0))
    with contextlib.suppress(TimeoutError, ProtocolError):
        async with asyncio.timeout(END_S):
            while await channel.receive() is not None:
                continue


class AgentSession:
    """One connection to an agent."""

    def __init__(
        self,
        opened: OpenedAgent,
        stages: Stages,
        settings: FleetSettings,
        received: Callable[[FromAgent], None],
        quiet: Callable[[float], None],
    ) -> None:
        """Call `received` with all but answers, `quiet` with the seconds since the last message."""
        self.channel, self.connection = opened.channel, opened.connection
        self.stages = stages
        self.heard_at = time.monotonic()
        """When the agent last said something, by the monotonic clock."""
        self.configured = False
        """Whether `Configure`, an agent's first message, was sent: only then others may be."""
        self.ready = False
        """Whether this session came as far as ready."""
        # Not what srun passes on, line by line, nor a single message.
        self._compressed = opened.connection is not None and not settings.once
        self._settings = settings
        self._received = received
        self._quiet = quiet
        self._facts: asyncio.Future[Facts] = asyncio.get_running_loop().create_future()
        self._events_left: float = EVENTS_AT_ONCE
        self._event_at = 0.0
        self._ending: AgentEnding | None = None

    async def attend(self, making_ready: Coroutine[Any, Any, None]) -> None:
        """Make ready, read and ping, until the first of them fails with a HostError."""
        try:
            await together(self._read(), self._ping(), making_ready)
        finally:
            self.channel.leave_unanswered(TimeoutError())

    async def configure(self, host: Host, **more: Any) -> Facts:
        """Send the first message, with `more` of its fields, and return the agent's facts."""
        settings = self._settings
        self.channel.send(
            Configure(
                cluster_id=settings.cluster_id,
                host=host.name,
                lease_s=settings.lease_s,
                telemetry_interval_s=settings.telemetry_interval_s,
                env=settings.environ + host.env,
                compressed=self._compressed,
                once=settings.once,
                **more,
            )
        )
        if self._compressed:
            self.channel.decompress()
        self.configured = True
        return await self._facts

    async def ask(self, order: Order) -> Any:
        """Ask the agent, and return its answer; raises TimeoutError where the session ends."""
        answer = await self.channel.ask(order)
        return answer if isinstance(answer, ANSWERS[type(order)]) else None

    async def _read(self) -> NoReturn:
        """Handle the agent's messages until the stream ends."""
        channel = self.channel
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
        if not self.ready:
            said = () if self._ending else channel.stream.stderr_tail  # not a login shell's words
            what = ": ".join((f"{what} before it was ready", *said[-1:]))
        tail = self._ending.log_tail if self._ending else channel.last_log_lines
        raise self.stages.error(what, stderr_tail=tail, transient=True)

    def _take(self, message: FromAgent) -> None:
        if not isinstance(message, READINGS):
            self._count_event()
        match message:
            case Pong():
                pass
            case Numbered():
                self.channel.answered(message)
            case AgentEnding():
                self._ending = message
            case _:
                self._received(message)
                if isinstance(message, Facts) and not self._facts.done():
                    self._facts.set_result(message)

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
        interval_s, silence_s = self._settings.ping_interval_s, self._settings.silence_s
        # A driver that wakes up may take longer than the lease.
        while not (await asyncio.wait([self._facts], timeout=interval_s))[0]:
            if self.configured:
                self.channel.send(KeepLease())
        number, quiet_s = 0, 0.0
        while quiet_s < silence_s + interval_s:
            wait_s = min(interval_s, max(silence_s - quiet_s, interval_s / 4))
            due = time.monotonic() + wait_s
            await asyncio.sleep(wait_s)
            held_up_s = time.monotonic() - due  # what held this process up is no host's silence
            self.heard_at = min(self.heard_at + held_up_s, time.monotonic())
            quiet_s = time.monotonic() - self.heard_at
            self._quiet(quiet_s)
            number += 1
            self.channel.send(KeepLease() if quiet_s < interval_s else Ping(number))
        raise self.stages.error(f"no message for {quiet_s:.0f} s", transient=True)
