"""An SSH connection to a host, and the command that runs over it; or one that an ssh holds open.

A connection may go through a ProxyCommand. An ssh in one has no terminal: it asks by a program
(SSH_ASKPASS), which passes its questions on to the user here.

A connection that the user's own ssh holds (ControlMaster) is used through that ssh: it is how
people reach hosts whose logins need a code. They log in once, by hand, and what follows goes
through the control socket.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Collection
from functools import partial
from itertools import chain
from pathlib import Path
from weakref import WeakSet

import asyncssh

from gputui.fleet.addresses import LOOPBACK, bracketed
from gputui.fleet.session import EXIT_S, READ_BYTES, LocalStream
from gputui.fleet.stages import Question, Stages
from gputui.model.bounds import LAST_LINE_CHARS, LAST_LINES
from gputui.model.frozen import frozen
from gputui.model.plain_text import cut
from gputui.process.background import Background, within, words
from gputui.process.child import Child, run

CLOSE_S = 2.0
BOUND_S = 10.0
"""How long an ssh that only speaks with a ControlMaster may take."""
STDERR_BYTES_PER_S = 2**20
"""Of a command's stderr that is read: all of it is for its last lines."""
THROUGH_A_JUMP_HOST = 8
"""Handshakes at once through one jump host, which is one machine for all of them."""
PROXY_GRACE_S = 1.0
MOST_LED = 1_024
LED_BYTES = 2**19
"""Connections from a host to ports here, and what is kept of each that is not taken."""

QUESTION_BYTES = 10_000
CLIENT = """
import socket, sys
own = socket.socket(socket.AF_UNIX)
own.connect(sys.argv[1])
own.sendall(sys.argv[2].encode("utf-8", "surrogateescape"))
own.shutdown(socket.SHUT_WR)
answer = b"".join(iter(lambda: own.recv(4096), b""))
sys.stdout.buffer.write(answer)
sys.exit(not answer)
"""


@frozen
class Proxy:
    """A running ProxyCommand."""

    command: str
    child: Child
    socket: socket.socket
    """Our end of its stdin and stdout."""


@contextlib.asynccontextmanager
async def running_proxy(command: str, stages: Stages) -> AsyncIterator[Proxy]:
    """Have the user's shell run a ProxyCommand, as under ssh; raises OSError.

    At the end the command and its children get SIGHUP, as from ssh, and are killed if they stay.
    """
    async with askpass(stages) as environ:
        ours, its = socket.socketpair()
        with ours:
            with its:
                child = Child(
                    [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"],
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    env={**os.environ, **environ},
                    own_session=True,
                )
            ours.setblocking(False)
            try:
                yield Proxy(command, child, ours)
            finally:
                await child.end(PROXY_GRACE_S, signal.SIGHUP)


@contextlib.asynccontextmanager
async def askpass(stages: Stages) -> AsyncIterator[dict[str, str]]:
    """Yield the variables that have an ssh ask the user here."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            text = (await reader.read(QUESTION_BYTES)).decode("utf-8", "replace").strip()
            answer = await stages.ask(question(text))
            if answer is not None:
                writer.write(f"{answer}\n".encode())
                await writer.drain()

    with tempfile.TemporaryDirectory(prefix="gputui-askpass-") as folder:
        program, path = Path(folder, "askpass"), f"{folder}/socket"
        client = shlex.join([sys.executable, "-IS", "-c", CLIENT, path])
        program.write_text(f'#!/bin/sh\nexec {client} "$1"\n')
        program.chmod(0o700)
        with contextlib.closing(await asyncio.start_unix_server(pass_on, path)):
            yield {
                "SSH_ASKPASS": str(program),
                "SSH_ASKPASS_REQUIRE": "force",
                "DISPLAY": os.environ.get("DISPLAY", "none"),
            }


def question(text: str) -> Question:
    """Return a prompt of ssh's as a question.

    >>> question("Enter passphrase for key '/k': ").kind, question("me@a's password:").secret
    ('passphrase', True)
    """
    if "continue connecting" in text:
        return Question("host-key", text, False)
    return Question("passphrase" if "passphrase" in text else "password", text, True)


class SshConnection:
    """An authenticated SSH connection to a host."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        through: "SshConnection | None",
        opened: contextlib.AsyncExitStack,
    ) -> None:
        """`opened` is closed with the connection: it holds the ProxyCommand, if any."""
        self.ssh = connection
        self.local_address: str = (
            through.local_address if through else _address(connection.get_extra_info("sockname"))
        )
        """Where the host reaches this machine; behind a jump host, where that one does.

        "" behind a ProxyCommand, where only the host knows.
        """
        self.far_address = "" if through else _address(connection.get_extra_info("peername"))
        """Where others reach the host; "" behind a jump host or proxy, where only it knows."""
        self.turns = asyncio.Semaphore(THROUGH_A_JUMP_HOST)
        """For handshakes of hosts behind this one."""
        self._opened = opened
        self._led = WeakSet[asyncssh.SSHForwarder]()
        """What connects the other end to ports here; asyncssh drops it with its channel."""
        self._leading = 0

    @property
    def forwarding(self) -> "SshConnection":
        """Itself: it forwards ports."""
        return self

    async def run(self, command: str) -> "SshStream":
        """Run a command, without a terminal; closing the stream closes the connection.

        Raises OSError where the server opens no session for it.
        """
        try:
            process = await self.ssh.create_process(command, encoding=None, request_pty=False)
        except asyncssh.Error as error:
            raise ConnectionAbortedError(error.reason) from error
        return SshStream(process, self)

    async def forward_socket(self, path: str, there: str) -> None:
        """Have a Unix socket at `path` here lead to the one at `there`.

        Raises OSError where the server does not forward it, or nothing listens there.
        """
        try:
            _, writer = await self.ssh.open_unix_connection(there, encoding=None)
            writer.close()
            await self.ssh.forward_local_path(path, there)
        except asyncssh.Error as error:
            raise OSError(0, f"{there}: {error.reason}") from error
        except ValueError as error:  # half of a surrogate pair
            raise OSError(0, f"{there!a} is no path") from error

    async def forward_port(self, host: str, port: int, own: int = 0) -> int:
        """Return a port of the loopback address here that leads to one that the other end sees.

        It is `own` where that is given. Raises OSError where no port is available.
        """
        listener = await self.ssh.forward_local_port(LOOPBACK, own, host, port)
        return int(listener.get_port())

    async def forward_back(self, port: int, there: int = 0) -> int:
        """Return a port of the loopback address there that leads to `port` of it here.

        It is `there` where that is given. Raises OSError where the server does not forward it.
        """
        try:
            listener = await self.ssh.create_server(
                partial(self._lead, port), LOOPBACK, there, encoding=None, window=LED_BYTES
            )
        except (asyncssh.Error, asyncssh.ChannelListenError) as error:
            raise OSError(0, str(error)) from error
        return int(listener.get_port())

    async def _lead(self, port: int, _host: str, _from: int) -> asyncssh.SSHForwarder:
        """Connect somebody on the other end to a port here; so many of them at most."""
        if len(self._led) + self._leading >= MOST_LED:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "too many")
        self._leading += 1
        try:
            forwarder = await self.ssh.forward_connection(LOOPBACK, port)
        finally:
            self._leading -= 1
        self._led.add(forwarder)
        return forwarder

    async def forward_same(self, ports: Collection[int], *, back: bool) -> None:
        """Have ports of the loopback address here, or `back` there, lead to the same over there.

        Raises OSError where one is not available.
        """
        ways = (
            self.forward_back(port, port) if back else self.forward_port(LOOPBACK, port, port)
            for port in ports
        )
        await asyncio.gather(*ways)

    def keep_alive(self, interval_s: float, count: int) -> None:
        """Notice a silent connection: it ends after `count` unanswered keepalives."""
        self.ssh.set_keepalive(interval_s, count)

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed, by either end."""
        return bool(self.ssh.is_closed())

    async def close(self) -> None:
        """Close the connection; abandon it where the other end does not answer."""
        self.ssh.close()
        if not await within(CLOSE_S, self.ssh.wait_closed()):
            self.ssh.abort()
        await self._opened.aclose()


class SshStream:
    """The stdin and stdout of a command on a host."""

    def __init__(
        self, process: "asyncssh.SSHClientProcess[bytes]", connection: SshConnection
    ) -> None:
        self._process = process
        self._connection = connection
        self._stderr: deque[str] = deque(maxlen=LAST_LINES)
        self._tasks = Background(lambda what, error: self._stderr.append(f"{what}: {words(error)}"))
        self._stderr_reader = self._tasks.start(self._read_stderr(), "reading stderr")

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""
        return tuple(self._stderr)

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end, a lost connection included."""
        try:
            return await self._process.stdout.read(READ_BYTES)
        except (OSError, asyncssh.Error):
            return b""

    def write(self, data: bytes) -> None:
        """Send without waiting."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)

    async def drain(self) -> None:
        """Wait until most of the written bytes are sent."""
        with contextlib.suppress(OSError, asyncssh.Error):
            await self._process.stdin.drain()

    async def exit_status(self) -> int | None:
        """Return the exit status; None if the command goes on for a second, or its end is lost."""
        with contextlib.suppress(OSError, asyncssh.Error):
            async with asyncio.timeout(EXIT_S):
                await self._stderr_reader
                await self._process.wait_closed()
        return self._process.exit_status

    async def close(self) -> None:
        """Close the connection."""
        await self._tasks.close()
        self._process.close()
        await self._connection.close()

    def abort(self) -> None:
        """Cut the connection."""
        self._connection.ssh.abort()

    async def _read_stderr(self) -> None:
        """Keep its last lines; a host that writes more than is read waits, by SSH's window."""
        with contextlib.suppress(OSError, asyncssh.Error):
            while chunk := await self._process.stderr.read(READ_BYTES):
                lines = chunk.decode("utf-8", "replace").splitlines()[-LAST_LINES:]
                self._stderr.extend(cut(line, LAST_LINE_CHARS) for line in lines)
                await asyncio.sleep(len(chunk) / STDERR_BYTES_PER_S)


def _address(end: object) -> str:
    """Return the address of a socket's end without an IPv6 scope."""
    return str(end[0]).partition("%")[0] if isinstance(end, tuple) else ""


class ControlMaster:
    """The control socket of one host; the same calls as an `SshConnection` has."""

    local_address = far_address = ""
    """Only the host knows."""

    def __init__(self, path: str, destination: tuple[str, ...]) -> None:
        self._path = Path(path)
        self._destination = destination
        self._forwarded: list[str] = []
        self.turns = asyncio.Semaphore(THROUGH_A_JUMP_HOST)

    @property
    def is_lost(self) -> bool:
        """Whether the socket is gone, as it is when its ssh ends."""
        return not self._path.is_socket()

    async def is_alive(self) -> bool:
        """Return whether an ssh answers at the socket."""
        return not self.is_lost and (await run(self._ssh("-O", "check"), BOUND_S)).status == 0

    @property
    def forwarding(self) -> "ControlMaster":
        """Itself: it forwards ports."""
        return self

    async def run(self, command: str) -> LocalStream:
        """Run a command, without a terminal."""
        options = ("-o", "RemoteCommand=none", "-o", "SessionType=default")
        return await LocalStream.start([*self._ssh("-T", *options), command], os.environ)

    def proxy_command(self, host: str, port: int) -> str:
        """Return the command that connects to another host from there."""
        return shlex.join(self._ssh("-W", f"{bracketed(host)}:{port}"))

    async def forward_socket(self, path: str, there: str) -> None:
        """Have a Unix socket at `path` here lead to the one at `there`; raises OSError."""
        await self._forward("-L", f"{path}:{there}")

    async def forward_port(self, host: str, port: int) -> int:
        """Return a port of the loopback address here that leads to one that the other end sees.

        Raises OSError where no port is available.
        """
        with socket.create_server((LOOPBACK, 0)) as server:
            own: int = server.getsockname()[1]
        await self._forward("-L", f"{LOOPBACK}:{own}:{bracketed(host)}:{port}")
        return own

    async def forward_back(self, port: int) -> int:
        """Return a port of the loopback address there that leads to `port` of it here.

        Raises OSError where the server does not forward it.
        """
        return int(await self._forward("-R", f"{LOOPBACK}:0:{LOOPBACK}:{port}"))

    async def forward_same(self, ports: Collection[int], *, back: bool) -> None:
        """Have ports of the loopback address here, or `back` there, lead to the same over there.

        By one ssh, as each takes some hundredths of a second. Raises OSError where one is not
        available.
        """
        ways = (("-R" if back else "-L", f"{LOOPBACK}:{port}:{LOOPBACK}:{port}") for port in ports)
        await self._forward(*chain.from_iterable(ways))

    def keep_alive(self, interval_s: float, count: int) -> None:
        """Do nothing: the ssh that holds the connection has its own settings for that."""

    async def close(self) -> None:
        """End the forwardings; the connection stays, as it is the user's."""
        if self._forwarded:
            await run(self._ssh("-O", "cancel", *self._forwarded), BOUND_S)
            self._forwarded.clear()

    async def _forward(self, *what: str) -> str:
        """Forward, and return the output of ssh: the port that the server chose."""
        self._forwarded += what  # of several that fail together some may be open
        ended = await run(self._ssh("-O", "forward", *what), BOUND_S)
        if ended.status:
            raise OSError(0, f"{what[1]}: {'; '.join(ended.last_log_lines)}")
        return ended.output

    def _ssh(self, *options: str) -> list[str]:
        own = ("-S", str(self._path), "-o", "ControlMaster=no")
        # In the background it would carry out no command, and without stdin no agent.
        here = ("-o", "ForkAfterAuthentication=no", "-o", "StdinNull=no")
        return ["ssh", *own, *here, *options, *self._destination]
