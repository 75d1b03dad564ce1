"""The agent's loop: takes a head's messages, reads the host, and looks after the workers.

One head at a time; one that connects again takes over with every worker alive. Without a head for
the length of the lease, or told to shut down, it ends the workers, removes what they left, and
ends itself.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import socket
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from gputui.agent.facts import gather_facts
from gputui.agent.gpu.telemetry import TelemetryReader
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.workers import Workers
from gputui.errors import ProtocolError
from gputui.process.lifetime import END_SIGNALS, Place, adopt_orphans
from gputui.protocol.agent import (
    Configure,
    Credentials,
    FollowLogs,
    FromAgent,
    Ping,
    Pong,
    Reach,
    Reached,
    RestartWorkers,
    Shutdown,
    StartWorkers,
    StopWorkers,
    ToAgent,
)
from gputui.protocol.codec import MAX_LINE_BYTES, decode, encode

LEASE_GRACE_S = 2.0
"""How long workers that were asked to end may take when the lease ran out."""

MAX_UNSENT_BYTES = 8 * 2**20
"""A head that takes nothing for so long misses telemetry rather than filling the memory here."""


def supervise(configure: Configure, place: Place, listener: socket.socket, scratch: Path) -> None:
    """Be the agent of this host until it is over; the first link comes over `listener`.

    Then `scratch`, a folder of its own, is removed.
    """
    adopt_orphans()
    environ = {**os.environ, **dict(configure.env), "GPUTUI_CLUSTER": configure.cluster_id}
    with (scratch / "agent.log").open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        asyncio.run(Supervisor(configure, environ, scratch, place).serve(listener))
    finally:
        listener.close()
        shutil.rmtree(scratch, ignore_errors=True)
        place.sweep()


class Supervisor:
    """The agent of one host."""

    def __init__(
        self, configure: Configure, environ: dict[str, str], scratch: Path, place: Place
    ) -> None:
        self._configure = configure
        self._environ = environ
        self._scratch = scratch
        self._writer: asyncio.StreamWriter | None = None
        self._heard_at = time.monotonic()
        self._over = asyncio.Event()
        self._watch = DeviceWatch(
            configure.cluster_id, environ=environ, interval_s=configure.telemetry_interval_s
        )
        self._workers = Workers(environ, scratch, place, self.send, self._watch.cpus_near)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve heads until told to end, or the lease runs out."""
        self._end_on_signals()
        self._workers.open()
        self._watch.start()
        reader = TelemetryReader(self._watch, scratch=self._scratch)
        server = await asyncio.start_unix_server(self._meet, sock=listener, limit=MAX_LINE_BYTES)
        lasting = [
            asyncio.create_task(self._lease()),
            asyncio.create_task(self._tell_readings(reader)),
        ]
        try:
            await self._over.wait()
        finally:
            server.close()
            for task in [*lasting, *self._tasks]:
                task.cancel()
            await self._workers.close()
            reader.close()
            self._watch.stop()
            await self._hang_up()

    def send(self, message: FromAgent) -> None:
        """Send to the head, if there is one that takes it."""
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            return
        with contextlib.suppress(ConnectionError):
            writer.write(encode(message))

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a head's messages until it is gone; its first takes over from any other head."""
        try:
            while line := await reader.readline():
                message = decode(line, ToAgent)
                if isinstance(message, Configure):
                    self._prefer(writer)
                if writer is not self._writer:
                    return
                self._heard_at = time.monotonic()
                self._take(message)
        except (ConnectionError, ValueError, ProtocolError):
            return
        finally:
            writer.close()
            if self._writer is writer:
                self._writer = None

    def _prefer(self, writer: asyncio.StreamWriter) -> None:
        """Speak with this head from now on, and hang up on any other."""
        before, self._writer = self._writer, writer
        if before is not None and before is not writer:
            before.close()

    def _end_on_signals(self) -> None:
        """Take a signal that asks this process to end as a head's wish."""
        for number in END_SIGNALS:
            wish = functools.partial(self._take, Shutdown(LEASE_GRACE_S))
            asyncio.get_running_loop().add_signal_handler(number, wish)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)

    def _take(self, message: ToAgent) -> None:
        """Carry out one message; what takes time goes on by itself."""
        match message:
            case Ping(number=number):
                self.send(Pong(number))
            case Configure():
                self._begin(self._tell_facts())
            case Reach():
                self._begin(self._try_port(message))
            case Credentials():
                self._workers.trust(message)
            case StartWorkers():
                self._workers.start(message)
            case StopWorkers(names=names, grace_s=grace_s):
                self._begin(self._workers.stop(names, grace_s))
            case RestartWorkers(names=names):
                self._workers.restart(names)
            case FollowLogs():
                self._workers.follow(message)
            case Shutdown(grace_s=grace_s):
                self._begin(self._shut_down(grace_s))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on by itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_facts(self) -> None:
        facts = await asyncio.to_thread(
            gather_facts, self._watch, scratch=self._scratch, environ=self._environ
        )
        self.send(replace(facts, running=self._workers.running()))

    async def _tell_readings(self, reader: TelemetryReader) -> None:
        """Send telemetry at each interval while there is a head."""
        while True:
            if self._writer is not None:
                self.send(await asyncio.to_thread(reader.read, self._workers.pids()))
            await asyncio.sleep(self._configure.telemetry_interval_s)

    async def _try_port(self, reach: Reach) -> None:
        """Try to connect to the scheduler's port, and tell how it went."""
        error = ""
        try:
            async with asyncio.timeout(reach.timeout_s):
                _, writer = await asyncio.open_connection(reach.host, reach.port)
                writer.close()
        except TimeoutError:
            error = f"no answer within {reach.timeout_s:.0f} s"
        except OSError as problem:
            error = os.strerror(problem.errno) if problem.errno else str(problem)
        self.send(Reached(reach.host, reach.port, error))

    async def _lease(self) -> None:
        """End when nothing was heard of a head for the length of the lease."""
        lease_s = self._configure.lease_s
        while (left_s := self._heard_at + lease_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        await self._workers.stop(self._workers.names(), LEASE_GRACE_S)
        self._over.set()

    async def _shut_down(self, grace_s: float) -> None:
        await self._workers.stop(self._workers.names(), grace_s)
        self._over.set()

    async def _hang_up(self) -> None:
        """Close the head's stream, after what was still to be sent."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._writer.wait_closed()
