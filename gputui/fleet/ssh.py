"""SSH connections with asyncssh, one to each host, as the user's SSH configuration has them.

HostName, User, Port, IdentityFile, ProxyJump, ProxyCommand and UserKnownHostsFile are as ssh
reads them; keys of an ssh-agent are used; hosts that share a jump host share one connection to
it. Every failure is a HostError in words (`refusals.py`). Imported when the first host needs it.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncssh

from gputui.errors import HostError
from gputui.fleet import refusals
from gputui.fleet.hostkeys import HostKeys
from gputui.fleet.link import READ_BYTES, STDERR_LINES
from gputui.fleet.stages import Question, Stages
from gputui.hosts import Host
from gputui.snapshot import HostState

CLOSE_S = 2.0
DROPPED_TRIES = 4
"""sshd drops connections at random past MaxStartups (10): such a host is tried again at once."""
THROUGH_A_JUMP_HOST = 8
"""Handshakes at once through one jump host, which is one machine for all of them."""
PASSWORD_TRIES = 3

AskPerson = Callable[[Question], Awaitable[str | None]]
AddressInfo = tuple[int, int, int, str, Any]
"""An answer of getaddrinfo."""


@dataclass(frozen=True, slots=True)
class JumpHost:
    """A connection that others go through."""

    connection: asyncssh.SSHClientConnection
    turns: asyncio.Semaphore


class Connector:
    """Makes the SSH connections of one fleet."""

    def __init__(self, config: str | None = None) -> None:
        self._config = config
        self._jump_hosts: dict[str, asyncio.Task[JumpHost]] = {}
        self._passphrases = Passphrases()

    async def connect(self, host: Host, stages: Stages) -> "Connection":
        """Connect through the stages up to authenticated; raises HostError."""
        target = await self._target(host, stages)
        jump = await self._jump_host(target.options.tunnel, stages)
        return await self._connect(target, jump, stages)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        for task in self._jump_hosts.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HostError):
                await _close((await task).connection)

    async def _target(self, host: Host, stages: Stages) -> "Target":
        """Return the host as the SSH configuration describes it; raises HostError."""
        stages.current = HostState.RESOLVING
        login = _Login(stages.ask, self._passphrases, host.name)
        arguments: dict[str, object] = {"host": host.name, "client_factory": lambda: login}
        if self._config:
            arguments["config"] = [self._config]
        if host.user:
            arguments["username"] = host.user
        if host.port:
            arguments["port"] = host.port
        try:
            options = await asyncssh.SSHClientConnectionOptions.construct(
                **arguments,
                passphrase=login.passphrase,
                ignore_encrypted=True,
                agent_forwarding=False,
                x11_forwarding=False,
                compression_algs=["none"],
                login_timeout=0,
                connect_timeout=None,
            )
        except (OSError, ValueError, asyncssh.Error, asyncssh.KeyImportError) as error:
            raise stages.error(*refusals.configuration(error, self._config)) from error
        login.keys = keys = HostKeys.of(options.config)
        return Target(host, options, keys, login, self._config)

    async def _connect(
        self, target: "Target", jump: JumpHost | None, stages: Stages
    ) -> "Connection":
        """Connect, again after a person accepted an unknown host key."""
        while True:
            try:
                return await self._connect_once(target, jump, stages)
            except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
                await self._settle_host_key(target, stages, error)

    async def _connect_once(
        self, target: "Target", jump: JumpHost | None, stages: Stages
    ) -> "Connection":
        """Make one connection, or a few where the server drops them at random."""
        for left in reversed(range(DROPPED_TRIES)):
            try:
                if jump is not None:
                    async with jump.turns:
                        return await self._handshake(target, stages, tunnel=jump.connection)
                if target.options.proxy_command:
                    return await self._handshake(target, stages)
                sock = await _open_socket(target, stages)
                return await self._handshake(target, stages, sock=sock)
            except (OSError, asyncssh.Error, ValueError, asyncssh.KeyImportError) as error:
                if refusals.is_about_host_key(error, target.keys):
                    raise
                if left and refusals.was_dropped(error):
                    await asyncio.sleep(0.1 * (DROPPED_TRIES - left))
                    continue
                raise stages.error(
                    *refusals.handshake(error, target.where, target.login_name, target.again),
                    transient=not isinstance(error, asyncssh.PermissionDenied),
                ) from error
        raise AssertionError("the last try returns or raises")

    async def _handshake(
        self,
        target: "Target",
        stages: Stages,
        *,
        sock: socket.socket | None = None,
        tunnel: asyncssh.SSHClientConnection | None = None,
    ) -> "Connection":
        late = f"{target.where} took the connection, but said nothing as an SSH server"
        remedy = "is that port sshd's? Write the right one: host:port"
        target.login.begin()
        try:
            async with stages.enter(HostState.AUTHENTICATING, late, remedy):
                connection = await asyncssh.connect(
                    options=target.options,
                    known_hosts=target.keys.match,
                    **({"sock": sock} if sock else {}),
                    **({"tunnel": tunnel} if tunnel else {}),
                )
        except BaseException:
            if sock:
                sock.close()
            raise
        return Connection(connection, through=tunnel)

    async def _settle_host_key(
        self, target: "Target", stages: Stages, error: asyncssh.Error
    ) -> None:
        """Have a person accept an unknown host key; raises HostError where that is not to be."""
        keys = target.keys
        if keys.offered is None or keys.known:
            raise stages.error(*refusals.changed_host_key(keys, error)) from error
        answer = await stages.ask(Question("host-key", refusals.host_key_question(keys), False))
        if (answer or "").strip().lower() not in ("yes", "y"):
            raise stages.error(*refusals.unknown_host_key(keys, target.again)) from error
        try:
            keys.remember()
        except OSError as problem:
            raise stages.error(f"the host key could not be remembered: {problem}") from problem
        keys.offered = None

    async def _jump_host(self, tunnel: object, stages: Stages) -> JumpHost | None:
        """Return the shared connection to a jump host, `user@host:port`, several by commas."""
        if not tunnel or not isinstance(tunnel, str):
            return None
        task = self._jump_hosts.get(tunnel)
        if task is None or (task.done() and not _alive(task)):
            task = asyncio.create_task(self._open_jump_host(tunnel, stages))
            self._jump_hosts[tunnel] = task
        try:
            return await asyncio.shield(task)
        except HostError as error:
            reason = f"its jump host {tunnel}: {error.reason}"
            raise stages.error(reason, error.remedy, transient=error.transient) from error

    async def _open_jump_host(self, tunnel: str, stages: Stages) -> JumpHost:
        """Connect to a jump host, itself through those before it in the list."""
        *before, last = tunnel.split(",")
        user, _, address = last.rpartition("@")
        name, colon, port = address.rpartition(":")
        host = Host(name if colon else address, user or None, int(port) if colon else None)
        target = await self._target(host, stages)
        via = await self._jump_host(",".join(before) or target.options.tunnel, stages)
        made = await self._connect(target, via, stages)
        return JumpHost(made.ssh, asyncio.Semaphore(THROUGH_A_JUMP_HOST))


class Connection:
    """An authenticated SSH connection to a host."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        through: asyncssh.SSHClientConnection | None = None,
    ) -> None:
        self.ssh = connection
        self.local_address = _address((through or connection).get_extra_info("sockname"))
        """Where the host reaches this machine; behind a jump host, where that one does."""
        self.far_address = "" if through else _address(connection.get_extra_info("peername"))
        """Where others reach the host; "" behind a jump host, where only it knows."""

    async def run(self, command: str) -> "SshStream":
        """Run a command, without a terminal; closing the stream closes the connection."""
        process = await self.ssh.create_process(command, encoding=None, request_pty=False)
        return SshStream(process, self)

    async def close(self) -> None:
        """Close the connection."""
        await _close(self.ssh)


class SshStream:
    """The stdin and stdout of a command on a host."""

    def __init__(self, process: "asyncssh.SSHClientProcess[bytes]", connection: Connection) -> None:
        self._process = process
        self._connection = connection
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_reader = asyncio.create_task(self._read_stderr())

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
        """Wait until what was written has mostly gone out."""
        with contextlib.suppress(OSError, asyncssh.Error):
            await self._process.stdin.drain()

    async def exit_status(self) -> int | None:
        """Return the exit status; None if the command goes on for a second, or its end is lost."""
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(1):
                await self._stderr_reader
                await self._process.wait_closed()
        return self._process.exit_status

    async def close(self) -> None:
        """Close the connection."""
        self._stderr_reader.cancel()
        self._process.close()
        await self._connection.close()

    async def _read_stderr(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while chunk := await self._process.stderr.read(READ_BYTES):
                self._stderr.extend(chunk.decode("utf-8", "replace").splitlines())


@dataclass(frozen=True, slots=True)
class Target:
    """A host with all that the SSH configuration says of it."""

    host: Host
    options: asyncssh.SSHClientConnectionOptions
    keys: HostKeys
    login: "_Login"
    config: str | None

    @property
    def where(self) -> str:
        """`address:port`, as the configuration resolves it."""
        return f"{self.options.host}:{self.options.port}"

    @property
    def login_name(self) -> str:
        """`user@name`."""
        return f"{self.options.username}@{self.host.name}"

    @property
    def again(self) -> tuple[str, ...]:
        """The arguments with which ssh reaches the same host."""
        config = ("-F", self.config) if self.config else ()
        port = ("-p", str(self.host.port)) if self.host.port else ()
        name = f"{self.host.user}@{self.host.name}" if self.host.user else self.host.name
        return (*config, *port, name)


class Passphrases:
    """Passphrases of key files, each asked for once however many hosts want it."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[str | None]] = {}

    async def get(self, filename: str, ask: AskPerson) -> str | None:
        """Return the passphrase of a key file; None where nobody gave it."""
        if filename not in self._asked:
            question = Question("passphrase", f"Passphrase of the key {filename}", True)
            self._asked[filename] = asyncio.ensure_future(_asked(ask, question))
        return await asyncio.shield(self._asked[filename])

    def forget(self) -> None:
        """Ask anew the next time: one was wrong."""
        self._asked.clear()


class _Login(asyncssh.SSHClient):
    """Answers asyncssh's questions during a handshake, asking a person where only one can."""

    def __init__(self, ask: AskPerson, passphrases: Passphrases, name: str) -> None:
        self._ask = ask
        self._passphrases = passphrases
        self._name = name
        self.keys: HostKeys | None = None
        self._tries = 0

    def begin(self) -> None:
        """Start anew with another connection."""
        self._tries = 0

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Note a key that known_hosts does not have; a person is asked afterwards."""
        assert self.keys
        self.keys.offered = key
        return False

    async def passphrase(self, filename: str) -> str | None:
        return await self._passphrases.get(filename, self._ask)

    async def password_auth_requested(self) -> str | None:
        return await self._password(f"Password of {self._name}")

    async def kbdint_auth_requested(self) -> str | None:
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        answers = []
        for prompt, echo in prompts:
            answer = await self._password(f"{self._name}: {prompt.strip()}", secret=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def _password(self, text: str, *, secret: bool = True) -> str | None:
        self._tries += 1
        if self._tries > PASSWORD_TRIES:
            return None
        answer = await self._ask(Question("password", text, secret))
        if answer is None:
            self._tries = PASSWORD_TRIES
        return answer


async def _asked(ask: AskPerson, question: Question) -> str | None:
    return await ask(question)


async def _open_socket(target: Target, stages: Stages) -> socket.socket:
    """Resolve the name and connect to the first of its addresses that answers."""
    loop = asyncio.get_running_loop()
    name, port = target.options.host, target.options.port
    late = f"{name} was not resolved in time"
    async with stages.enter(HostState.RESOLVING, late, refusals.RESOLVING_REMEDY):
        family = target.options.family or socket.AF_UNSPEC
        found = await loop.getaddrinfo(name, port, family=family, type=socket.SOCK_STREAM)
    late = f"no answer from {target.where}"
    async with stages.enter(HostState.CONNECTING, late, refusals.CONNECTING_REMEDY):
        return await _first_that_answers(found, stages.timeout_s / len(found))


async def _first_that_answers(found: Sequence[AddressInfo], each_s: float) -> socket.socket:
    loop = asyncio.get_running_loop()
    problem: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(each_s):
                await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
    raise problem


def _alive(task: "asyncio.Task[JumpHost]") -> bool:
    if task.cancelled() or task.exception():
        return False
    return not task.result().connection.is_closed()


def _address(end: object) -> str:
    """Return the address of a socket's end without an IPv6 scope."""
    return str(end[0]).partition("%")[0] if isinstance(end, tuple) else ""


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await connection.wait_closed()
    except TimeoutError:
        connection.abort()
