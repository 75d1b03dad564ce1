"""SSH connections with asyncssh, one to each host, as the user's SSH configuration has them.

HostName, User, Port, IdentityFile, ProxyJump, ProxyCommand and UserKnownHostsFile are as ssh
reads them; keys of an ssh-agent are used; hosts that share a jump host share one connection to
it. Every failure is a HostError in words (`refusals.py`). Imported when the first host needs it.
"""

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncssh

from gputui.errors import HostError
from gputui.fleet.ssh import refusals
from gputui.fleet.ssh.connection import Connection, close
from gputui.fleet.ssh.host_keys import HostKeys
from gputui.fleet.ssh.login import Login, Passphrases
from gputui.fleet.stages import Question, Stages
from gputui.hosts import Host
from gputui.snapshot import HostState

DROPPED_TRIES = 8
"""sshd drops connections at random past MaxStartups (10): such a host is tried again soon."""
THROUGH_A_JUMP_HOST = 8
"""Handshakes at once through one jump host, which is one machine for all of them."""

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
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

    async def connect(self, host: Host, stages: Stages) -> Connection:
        """Connect through the stages up to authenticated; raises HostError."""
        target = await self._target(host, stages)
        jump = await self._jump_host(target.options.tunnel, stages)
        return await self._connect(target, jump, stages)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        for task in self._jump_hosts.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HostError):
                await close((await task).connection)

    async def _target(self, host: Host, stages: Stages) -> "Target":
        """Return the host as the SSH configuration describes it; raises HostError."""
        stages.current = HostState.RESOLVING
        login = Login(stages, self._passphrases)
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
        except (OSError, ValueError, asyncssh.Error, *refusals.KEY_ERRORS) as error:
            raise stages.error(*refusals.configuration(error, self._config)) from error
        login.keys = keys = HostKeys.of(options.config)
        return Target(host, options, keys, login, self._config)

    async def _connect(self, target: "Target", jump: JumpHost | None, stages: Stages) -> Connection:
        """Connect, again after a person accepted an unknown host key."""
        while True:
            try:
                return await self._connect_once(target, jump, stages)
            except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
                await self._settle_host_key(target, stages, error)

    async def _connect_once(
        self, target: "Target", jump: JumpHost | None, stages: Stages
    ) -> Connection:
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
            except (OSError, ValueError, asyncssh.Error, *refusals.KEY_ERRORS) as error:
                if refusals.is_about_host_key(error, target.keys):
                    raise
                if left and refusals.was_dropped(error):
                    await asyncio.sleep(random.uniform(0.05, 0.15) * (DROPPED_TRIES - left))
                    continue
                raise self._refusal(target, stages, error) from error
        raise AssertionError("the last try returns or raises")

    def _refusal(self, target: "Target", stages: Stages, error: Exception) -> HostError:
        """Return a failed handshake in words."""
        if not isinstance(error, asyncssh.PermissionDenied):
            return stages.error(*refusals.handshake(error, target.where), transient=True)
        if target.login.opened:
            self._passphrases.forget()
        return stages.error(
            *refusals.login(error, target.login_name, target.again, target.login.opened)
        )

    async def _handshake(
        self,
        target: "Target",
        stages: Stages,
        *,
        sock: socket.socket | None = None,
        tunnel: asyncssh.SSHClientConnection | None = None,
    ) -> Connection:
        late = f"{target.where} took the connection, but said nothing as an SSH server"
        hint = "is that port sshd's? Write the right one: host:port"
        target.login.begin()
        try:
            async with stages.enter(HostState.AUTHENTICATING, late, hint):
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
            raise stages.error(reason, error.hint, transient=error.transient) from error

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


@dataclass(frozen=True, slots=True)
class Target:
    """A host with all that the SSH configuration says of it."""

    host: Host
    options: asyncssh.SSHClientConnectionOptions
    keys: HostKeys
    login: Login
    config: str | None

    @property
    def where(self) -> str:
        """`address:port`, as the configuration resolves it."""
        host = self.options.host
        return f"[{host}]:{self.options.port}" if ":" in host else f"{host}:{self.options.port}"

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


async def _open_socket(target: Target, stages: Stages) -> socket.socket:
    """Resolve the name and connect to the first of its addresses that answers."""
    name, port = target.options.host, target.options.port
    late = f"{name} was not resolved in time"
    async with stages.enter(HostState.RESOLVING, late, refusals.RESOLVING_HINT):
        family = target.options.family or socket.AF_UNSPEC
        found = await _resolve(name, port, family)
    late = f"no answer from {target.where}"
    async with stages.enter(HostState.CONNECTING, late, refusals.CONNECTING_HINT):
        return await _first_that_answers(found, stages.timeout_s / len(found))


async def _resolve(name: str, port: int, family: int) -> list[AddressInfo]:
    """Return the addresses of a name; raises socket.gaierror.

    In a thread of its own: names that no server answers for hold up neither other hosts, as
    they would in asyncio's few threads, nor the end of this process.
    """
    loop = asyncio.get_running_loop()
    resolved: asyncio.Future[list[AddressInfo]] = loop.create_future()

    def settle(found: list[AddressInfo] | OSError) -> None:
        if resolved.done():
            return
        if isinstance(found, OSError):
            resolved.set_exception(found)
        else:
            resolved.set_result(found)

    def resolve() -> None:
        found: list[AddressInfo] | OSError
        try:
            found = list(socket.getaddrinfo(name, port, family, socket.SOCK_STREAM))
        except OSError as error:
            found = error
        except UnicodeError:
            found = socket.gaierror(socket.EAI_NONAME, "not a name that DNS allows")
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=resolve, name=f"resolve {name}", daemon=True).start()
    return await resolved


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
