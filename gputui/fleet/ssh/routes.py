"""Connections along routes, with asyncssh, as ssh itself would make them.

asyncssh is given all that the user's configuration says explicitly, so that it reads no file by
itself. Hosts that share a jump host share one connection to it. Every failure is a HostError with
its hint. Imported by `connector.py`, in a thread.
"""

import asyncio
import contextlib
import errno
import random
import shlex
import socket
import threading
from asyncio.staggered import staggered_race
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import asyncssh

from gputui.errors import HostError
from gputui.fleet.ssh.configuration import FAMILIES, Route, SshConfiguration
from gputui.fleet.ssh.connection import ControlMaster, SshConnection, running_proxy
from gputui.fleet.ssh.login import Identities, Login, options_for
from gputui.fleet.stages import Stages
from gputui.model.snapshot import HostState
from gputui.process.background import Shared

NEXT_ADDRESS_S = 2.0
"""How long an address is waited for before the next one of a name is tried as well."""
DROPPED_TRIES = 8
"""sshd drops connections at random past MaxStartups (10): such a host is tried again soon."""
HANDSHAKES_AT_ONCE = 100
"""Each takes some 5 ms of this process: with thousands at once, none would end in its time."""
JUMP_KEEPALIVE_S = 1.5
JUMP_KEEPALIVES = 3
"""Unanswered ones after which another connection to a jump host is made: TCP would hold on to one
for a quarter of an hour, with all the hosts behind it."""
PROXY_LINES_S = 0.5
"""How long the last lines of a ProxyCommand are waited for."""

RESOLVING_HINT = "correct the name, or give its HostName in ~/.ssh/config"
CONNECTING_HINT = "is the host up, and does a firewall let its SSH port through?"
PORT_HINT = "is that port sshd's? Write the right one: host:port"

Connection = SshConnection | ControlMaster
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""An answer of getaddrinfo."""


class Routes:
    """Follows the routes to the hosts of one fleet."""

    def __init__(self) -> None:
        self._handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self._jump_hosts: dict[Route, Shared[Connection]] = {}
        self._identities = Identities()

    async def follow(self, route: Route, stages: Stages) -> Connection:
        """Connect to the last host of a route, or take up the connection that an ssh holds.

        Raises HostError.
        """
        configuration = route[-1]
        if path := configuration.word("controlpath"):
            master = ControlMaster(path, configuration.again)
            late = f"the ssh at {path} does not answer"
            async with stages.enter(HostState.CONNECTING, late, "end it, and log in again"):
                if await master.is_alive():
                    return master
        if configuration.not_honoured:
            name, options = configuration.name, ", ".join(configuration.not_honoured)
            raise stages.error(
                f"the SSH configuration of {name} has {options}, which gputui cannot follow",
                f"take it out for this host (`Host {name}` in ~/.ssh/config)",
            )
        jump = await self._jump_host(route[:-1], stages) if route[:-1] else None
        for left in reversed(range(DROPPED_TRIES)):
            asked = stages.asked
            login = Login(configuration, self._identities, stages)
            try:
                return await self._log_in(login, jump, stages)
            except (OSError, ValueError, asyncssh.Error) as error:
                if isinstance(login.verdict, HostError):
                    raise login.verdict from error
                patient = stages.asked > asked if login.heard_version else not login.proxy
                if not (left and patient and was_dropped(error)):
                    raise await self._refusal(login, error, stages) from error
                stages.dropped += 1
                await asyncio.sleep(random.uniform(0.05, 0.15) * (DROPPED_TRIES - left))
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        for each in self._jump_hosts.values():
            if jump_host := await each.close():
                await jump_host.close()

    async def _log_in(self, login: Login, jump: Connection | None, stages: Stages) -> SshConnection:
        """Make one connection: through a jump host, a ProxyCommand, or directly."""
        configuration, where = login.configuration, login.configuration.where
        late, hint = f"{where} took the connection, but said nothing as an SSH server", PORT_HINT
        command = configuration.proxy_command
        through = jump if isinstance(jump, SshConnection) else None
        if isinstance(jump, ControlMaster):
            command = jump.proxy_command(configuration.hostname, configuration.port)
        async with AsyncExitStack() as opened, AsyncExitStack() as attempt:
            attempt.push_async_exit(login.close)
            sock = None
            if command and not through:
                login.proxy = await opened.enter_async_context(running_proxy(command, stages))
                sock = login.proxy.socket
                late, hint = f"its ProxyCommand did not lead to {where} in time", f"try: {command}"
            elif not through:
                sock = opened.enter_context(await open_socket(configuration, stages))
                login.address = sock.getpeername()[0].partition("%")[0]
            await login.turn.enter_async_context(jump.turns if jump else self._handshakes)
            async with login.turn:
                options = options_for(login, await login.keys.algorithms(), sock)
                async with stages.enter(HostState.AUTHENTICATING, late, hint):
                    connection = await asyncssh.connect(**options, tunnel=through and through.ssh)
            if not login.is_trusted:
                connection.abort()
                raise asyncssh.HostKeyNotVerifiable("asyncssh did not have it checked")
            return SshConnection(connection, through, opened.pop_all())

    async def _refusal(self, login: Login, error: Exception, stages: Stages) -> HostError:
        """Describe a failed login."""
        configuration, dropped = login.configuration, was_dropped(error)
        if isinstance(error, asyncssh.ChannelOpenError):
            stages.current = HostState.CONNECTING
        if login.proxy and dropped:
            await login.proxy.child.wait(PROXY_LINES_S)
            said = "; ".join(login.proxy.child.last_log_lines) or "it ended without a word"
            hint = f"try it alone: {login.proxy.command}"
            return stages.error(f"its ProxyCommand failed: {said}", hint, transient=True)
        if login.is_trusted and isinstance(error, asyncssh.DisconnectError) and not dropped:
            used = (*configuration.paths("identityfile"), configuration.agent)
            problems = self._identities.problems
            doubts = [f"{path}: {problems[path]}" for path in sorted(problems.keys() & used)]
            return stages.error(*refused_login(plain(str(error)), configuration, doubts))
        if login.heard_version and dropped and login.shown is None:
            return stages.error(*no_algorithm(configuration.where, "it ended the key exchange"))
        return stages.error(*failed_handshake(error, configuration.where), transient=True)

    async def _jump_host(self, route: Route, stages: Stages) -> Connection:
        """Return the shared connection to the last host of a route."""
        shared = self._jump_hosts.setdefault(route, Shared(lambda made: not made.is_lost))
        try:
            return await shared.get(partial(self._open_jump_host, route, stages))
        except HostError as error:
            reason = f"its jump host {route[-1].login_name}: {error.reason}"
            stages.current = HostState(error.stage)
            raise stages.error(reason, error.hint, transient=error.transient) from error

    async def _open_jump_host(self, route: Route, stages: Stages) -> Connection:
        """Connect to a jump host, itself through those before it."""
        made = await self.follow(route, stages)
        made.keep_alive(JUMP_KEEPALIVE_S, JUMP_KEEPALIVES)
        return made


async def open_socket(configuration: SshConfiguration, stages: Stages) -> socket.socket:
    """Resolve the name and connect to the first of its addresses that answers."""
    name, port = configuration.hostname, configuration.port
    late = f"{name} was not resolved in time"
    async with stages.enter(HostState.RESOLVING, late, RESOLVING_HINT):
        found = await _resolve(name, port, FAMILIES.get(configuration.word("addressfamily"), 0))
        sources = [await _source(configuration, each[0]) for each in found]
    late = f"no answer from {configuration.where}"
    bound_s = configuration.number("connecttimeout", 0)
    async with stages.enter(HostState.CONNECTING, late, CONNECTING_HINT, bound_s=bound_s):
        attempts = [partial(_connect, *pair) for pair in zip(found, sources, strict=True)]
        winner, _, problems = await staggered_race(attempts, NEXT_ADDRESS_S)
    if not isinstance(winner, socket.socket):
        raise next((each for each in reversed(problems) if each), OSError("no address"))
    return winner


async def _resolve(name: str, port: int, family: int) -> list[AddressInfo]:
    """Return the addresses of a name; raises socket.gaierror, or UnicodeError for no DNS name.

    A name is looked up in a thread of its own: one that no server answers for holds up neither
    other hosts, as it would in asyncio's few threads, nor the end of this process.
    """
    look_up = partial(socket.getaddrinfo, name, port, family, socket.SOCK_STREAM)
    with contextlib.suppress(OSError, UnicodeError):  # a number: no server is asked
        return list(look_up(flags=socket.AI_NUMERICHOST))
    resolved: Future[list[AddressInfo]] = Future()
    resolved.set_running_or_notify_cancel()

    def resolve() -> None:
        try:
            resolved.set_result(list(look_up()))
        except (OSError, UnicodeError) as error:
            resolved.set_exception(error)

    threading.Thread(target=resolve, name=f"resolve {name}", daemon=True).start()
    return await asyncio.wrap_future(resolved)


async def _source(configuration: SshConfiguration, family: int) -> Any:
    """Return the address to connect from, by BindAddress; None for any."""
    address = configuration.word("bindaddress")
    return (await _resolve(address, 0, family))[0][4] if address else None


async def _connect(info: AddressInfo, source: Any) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        if source is not None:
            sock.bind(source)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def was_dropped(error: Exception) -> bool:
    """Return whether the server closed before it sent its SSH version, as past MaxStartups."""
    return isinstance(error, ConnectionResetError | BrokenPipeError | asyncssh.ConnectionLost)


def refused_login(said: str, configuration: SshConfiguration, doubts: list[str]) -> tuple[str, str]:
    """Return (reason, hint) for a host that refused every login that was offered."""
    reason = f"refused the login of {configuration.login_name}: {'; '.join((said, *doubts))}"
    if "Too many authentication failures" in said:
        return reason, (
            "name its key in ~/.ssh/config: IdentityFile with IdentitiesOnly yes, so that "
            "ssh-agent's others are not offered first"
        )
    return reason, (
        f"{shlex.join(('ssh-copy-id', *configuration.again))}; "
        f"or give an IdentityFile or User in ~/.ssh/config, or load ssh-agent; gputui help ssh"
    )


def failed_handshake(error: Exception, where: str) -> tuple[str, str]:
    """Return (reason, hint) for a connection to `where` (address:port) without a login."""
    match error:
        case socket.gaierror() | UnicodeError():
            name = where.rpartition(":")[0].strip("[]")
            why = getattr(error, "strerror", "not a name that DNS allows")
            return f"{name} does not resolve: {why}", RESOLVING_HINT
        case asyncssh.ChannelOpenError():
            return f"the jump host cannot connect to {where}: {error.reason}", CONNECTING_HINT
        case asyncssh.KeyExchangeFailed():
            return no_algorithm(where, plain(error.reason))
        case asyncssh.ConnectionLost():
            return (
                f"{where} closed the connection before the login: {plain(error.reason)}",
                "its sshd may take no more connections at once (MaxStartups): retry",
            )
        case asyncssh.Error():
            return f"{where} does not answer as an SSH server: {plain(error.reason)}", PORT_HINT
        case OSError(errno=errno.ECONNREFUSED):
            return (
                f"{where} refuses the connection",
                "start sshd there, or write the port it listens on: host:port",
            )
        case TimeoutError():
            return f"no answer from {where}", CONNECTING_HINT
        case OSError():
            return f"{where}: {error.strerror or error or type(error).__name__}", CONNECTING_HINT
    return f"{type(error).__name__}: {error}", ""


def no_algorithm(where: str, said: str) -> tuple[str, str]:
    """Return (reason, hint) for two ends that allow no algorithm in common."""
    return (
        f"{where} shares no SSH algorithm with us: {said}",
        "allow what it has: KexAlgorithms, Ciphers or HostKeyAlgorithms +NAME in ~/.ssh/config",
    )


def plain(reason: str) -> str:
    """Return a reason of asyncssh without its full stop."""
    return reason.strip().rstrip(".") or "no reason given"
