"""The agent's loop: takes a head's messages, reads the host, and looks after the workers.

One head at a time; one that connects again takes over with every worker alive. Without a head for
the length of the lease, or asked to shut down, it ends the workers, removes what they left, and
ends itself.
"""

import asyncio
import contextlib
import os
import signal
import socket
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path

from gputui.agent.agent_socket import (
    PACK,
    AgentSocket,
    begin_log,
    keep_log_small,
    log_tail,
    own_scratch,
    sweep_scratch,
)
from gputui.agent.facts import gather_facts
from gputui.agent.gpu.telemetry import TelemetryReader
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.held_claims import FOLLOW_S, HeldClaims
from gputui.agent.listening import OpenPorts
from gputui.agent.programs import Programs
from gputui.agent.workers import Workers
from gputui.errors import ProtocolError
from gputui.folders import remove_folder
from gputui.process.background import RETRY_S, Background, together, within, words
from gputui.process.lifetime import END_SIGNALS, adopt_orphans, look_rarely, start_problem
from gputui.protocol.agent import (
    AgentEnding,
    ClaimGpus,
    Configure,
    EndClaims,
    Examine,
    FromAgent,
    HostExamined,
    KnowFrontends,
    Listen,
    Ping,
    Pong,
    Reach,
    Reached,
    ReleaseGpus,
    RestartWorkers,
    Shutdown,
    StandInLine,
    StartWorkers,
    StopListening,
    StopWorkers,
    ToAgent,
    Trouble,
)
from gputui.protocol.channel import Channel
from gputui.protocol.programs import (
    BytesTaken,
    EndPrograms,
    ProgramInput,
    ResizeTerminal,
    SendFolder,
    SignalProgram,
    StartProgram,
)
from gputui.protocol.shared import Credentials, FollowLogs
from gputui.protocol.streams import SocketStream, try_port

LEASE_GRACE_S = 2.0
"""How long workers that were asked to end may take when the lease ran out."""

LEASE_STEPS = 20
"""A lease runs out in so many steps. One in which the process was held up, stopped or suspended
with its machine, counts as any other: what its head sent meanwhile is still unread."""

LOOK_EVERY_S = 1.0
WORKERS_EVERY_S = 0.2
PROGRAMS_EVERY_S = 0.5
"""How often the memory of those with a limit is read."""

MEETING_S = 2.0
"""How long an agent that cannot work waits for its head, to say so."""

HeadChannel = Channel[FromAgent, ToAgent]


def supervise(
    configure: Configure,
    environ: dict[str, str],
    watch: DeviceWatch,
    agent_socket: AgentSocket,
    listener: socket.socket,
    lock: int,
    scratch: Path,
) -> None:
    """Run the agent of this host to its end; the first head connects over `listener`.

    Then `scratch`, a folder of its own, is removed, and `lock` is given up. The caller ends the
    process at once: a thread that hangs in a file system or a driver would keep it.
    """
    adopt_orphans()
    look_rarely()
    own_scratch(scratch)
    begin_log(scratch)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(
            Supervisor(configure, environ, watch, scratch, agent_socket).serve(listener)
        )
    finally:
        listener.close()
        remove_folder(scratch)
        agent_socket.remove()
        os.close(lock)


class Supervisor:
    """The agent of one host."""

    def __init__(
        self,
        configure: Configure,
        environ: dict[str, str],
        watch: DeviceWatch,
        scratch: Path,
        agent_socket: AgentSocket,
    ) -> None:
        self._configure = configure
        self._environ = environ
        self._watch = watch
        self._scratch = scratch
        self._socket = agent_socket
        self._head: HeadChannel | None = None
        self._lease_steps = LEASE_STEPS
        """Those that are left."""
        self._over = asyncio.Event()
        self._met = asyncio.Event()
        """Set when the first head has connected."""
        self._ending: AgentEnding | None = None
        self._reported = ""
        self._held_claims = HeldClaims(environ, configure, watch.idle_since, self.send)
        watch.claims = self._held_claims.claims
        self._programs = Programs(environ, scratch, self.send)
        self._workers = Workers(
            environ, scratch, agent_socket, self.send, self._watch, self._programs.pids
        )
        self._ports = OpenPorts()
        self._heads = Background(self._work_failed)
        self._work = Background(self._work_failed)
        self._lasting = Background(self._lasting_failed)

    async def serve(self, listener: socket.socket) -> None:
        """Serve heads until asked to end, or the lease runs out."""
        server = await asyncio.start_unix_server(self._accept, sock=listener)
        try:
            self._start()
            await self._over.wait()
        except Exception as error:
            traceback.print_exc()
            self._end(f"it could not be started: {start_problem(error)}")
            await within(MEETING_S, self._met.wait())
        finally:
            server.close()
            await self._lasting.close()
            await self._work.close()
            await self._programs.close()
            await self._workers.close()
            if self._ending is not None:
                self.send(self._ending)
            if self._head is not None:
                await self._head.close()
            await self._heads.close()
            self._held_claims.close()

    def _start(self) -> None:
        """Start all that goes on for as long as the agent."""
        for number in END_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(
                number, self._take, Shutdown(LEASE_GRACE_S)
            )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        self._watch.start()
        reader = TelemetryReader(self._watch)
        self._lasting.keep(self._end_with_lease, "the lease")
        self._work.start(asyncio.to_thread(self._sweep), "removing what killed agents left")
        if self._configure.workers_wanted:
            self._workers.forkserver.start()
        self._lasting.keep(self._workers.forkserver.run, "starting workers")
        for name, interval_s, work in (
            (
                "telemetry",
                self._configure.telemetry_interval_s,
                partial(self._tell_readings, reader),
            ),
            ("claims", FOLLOW_S, self._follow_workers),
            ("its log and its pack", LOOK_EVERY_S, self._keep_house),
            ("memory limits", WORKERS_EVERY_S, self._workers.keep_limits),
            ("memory limits of programs", PROGRAMS_EVERY_S, self._programs.keep_limits),
        ):
            self._lasting.every(interval_s, work, name, self._failing)

    def _sweep(self) -> None:
        sweep_scratch(self._scratch.parent)
        self._socket.sweep_others()

    def send(self, message: FromAgent) -> None:
        """Send to the head, if one is connected: the next one gets the state with the facts."""
        if self._head is not None:
            self._head.send(message)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = HeadChannel(SocketStream(reader, writer), ToAgent)
        self._heads.start(self._meet(channel), "a head")

    async def _meet(self, channel: HeadChannel) -> None:
        """Take a head's messages until it is gone; its first takes over from any other head."""
        try:
            async for message in channel:
                if isinstance(message, Configure):
                    before, self._head, self._reported = self._head, channel, ""
                    self._met.set()
                    if before is not None and before is not channel:
                        before.abort()
                    if message.compressed:
                        channel.compress()
                if channel is not self._head:
                    return
                self._lease_steps = LEASE_STEPS
                self._take(message)
        except ProtocolError as error:
            channel.send(Trouble(f"its agent was sent what is no message: {error}"))
        finally:
            if self._head is channel and not self._over.is_set():
                self._head = None
            if self._head is not channel:
                await channel.close()

    def _take(self, message: ToAgent) -> None:
        """Carry out one message as a task, after those before it; a failure is reported."""
        self._work.start(self._carry_out(message), type(message).__name__)

    async def _carry_out(self, message: ToAgent) -> None:
        match message:
            case Ping(number=number):
                self.send(Pong(number))
            case Configure(frontends=pids):
                self._watch.processes.frontends = pids
                await self._tell_facts()
            case KnowFrontends(pids=pids):
                self._watch.processes.frontends = pids
            case Reach(number, host, port, timeout_s):
                self.send(Reached(number, *await try_port(host, port, timeout_s)))
            case Listen():
                self.send(await self._ports.open(message))
            case StopListening():
                self._ports.close()
            case Credentials():
                self._workers.trust(message)
            case StandInLine() | ClaimGpus() | ReleaseGpus() | EndClaims():
                self.send(self._held_claims.carry_out(message))
            case StartWorkers():
                self._workers.start(message)
                self._follow_workers()
            case StopWorkers(names=names, grace_s=grace_s):
                await self._workers.stop(names, grace_s)
            case RestartWorkers(names=names):
                self._workers.restart(names)
            case FollowLogs():
                self._workers.follow(message)
            case Examine():
                self.send(HostExamined(message.request, await self._workers.examine()))
            case SendFolder():
                self.send(await self._programs.take_folder(message))
            case StartProgram():
                self._programs.start(message)
            case EndPrograms():
                await self._programs.end(message)
            case ProgramInput() | BytesTaken() | SignalProgram() | ResizeTerminal():
                self._programs.take(message)
            case Shutdown(grace_s=grace_s):
                await self._shut_down(grace_s)

    def _work_failed(self, name: str, error: Exception) -> None:
        """Report to the head that a request of its failed; without its facts it cannot go on."""
        if name == Configure.__name__:
            self._lasting_failed("describing this host", error)
            return
        self.send(Trouble(f"{name} failed: {words(error)}"))

    def _lasting_failed(self, name: str, error: Exception) -> None:
        """End the agent: without this it would be of no use, or outlive its head."""
        self._end(f"{name} failed: {start_problem(error)}")
        self._over.set()

    def _failing(self, name: str, error: Exception) -> None:
        """Report a lasting problem to the head, once."""
        traceback.print_exception(error)
        text = f"{name} failed, and is tried every {RETRY_S:g} s: {words(error)}"
        if text != self._reported:
            self._reported = text
            self.send(Trouble(text))

    async def _tell_facts(self) -> None:
        facts = await asyncio.to_thread(
            gather_facts,
            self._watch,
            scratch=self._scratch,
            environ=self._environ,
            problem=self._held_claims.problem,
        )
        self._held_claims.told |= {each.uuid for each in facts.devices if each.claim}
        self.send(replace(facts, running=self._workers.running()))
        self._programs.tell()
        self._held_claims.tell()

    def _follow_workers(self) -> None:
        for text in self._held_claims.follow(self._workers.devices()):
            self.send(Trouble(text))

    def _keep_house(self) -> None:
        """Empty a full log; and touch the pack, so that no other agent sweeps it."""
        keep_log_small()
        if PACK:
            with contextlib.suppress(OSError):
                os.utime(PACK)

    async def _tell_readings(self, reader: TelemetryReader) -> None:
        """Send telemetry while there is a head."""
        if self._head is not None:
            self.send(await asyncio.to_thread(reader.read, self._workers.pids()))

    async def _end_with_lease(self) -> None:
        """End when no message of a head came for the length of the lease."""
        while self._lease_steps:
            await asyncio.sleep(self._configure.lease_s / LEASE_STEPS)
            self._lease_steps -= 1
        self._end(f"its head said nothing for {self._configure.lease_s:g} s")
        await self._shut_down(LEASE_GRACE_S)

    async def _shut_down(self, grace_s: float) -> None:
        try:
            await together(
                self._workers.stop(self._workers.names(), grace_s), self._programs.close(grace_s)
            )
        finally:
            self._over.set()

    def _end(self, reason: str) -> None:
        """Note why the agent ends; its log is removed before it has ended."""
        self._ending = AgentEnding(reason, log_tail(self._scratch))
