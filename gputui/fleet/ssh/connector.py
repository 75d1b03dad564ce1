"""SSH connections with asyncssh, one to each host, as ssh itself would make them.

What the user's configuration says is evaluated by ssh (`configuration.py`), and asyncssh is given
all of it explicitly, so that it reads no file by itself. Hosts that share a jump host share one
connection to it. Every failure is a HostError (`refusals.py`). Imported when the first
host needs it.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import asyncssh

from gputui.errors import HostError
from gputui.fleet.ssh import refusals
from gputui.fleet.ssh.configuration import (
    ConfigurationError,
    Destination,
    Route,
    route,
    this_machine,
)
from gputui.fleet.ssh.connection import ControlMaster, SshConnection
from gputui.fleet.ssh.identities import Identities
from gputui.fleet.ssh.login import Login, options_for
from gputui.fleet.ssh.sockets import Askpass, Proxy, open_socket
from gputui.fleet.stages import PATIENT, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from gputui.process.background import Shared

EVALUATED_AT_ONCE = 8
"""The hosts of a large fleet are asked ssh about in turn, and waiting does not count as time."""
DROPPED_TRIES = 8
"""sshd drops connections at random past MaxStartups (10): such a host is tried again soon."""
HANDSHAKES_AT_ONCE = 32
"""Each takes some 40 ms of this process: with hundreds at once, none would end in its time."""
THROUGH_A_JUMP_HOST = 8
"""Handshakes at once through one jump host, which is one machine for all of them."""
JUMP_KEEPALIVE_S = 1.5
JUMP_KEEPALIVES = 3
"""Unanswered ones after which another connection to a jump host is made: TCP would hold on to one
for a quarter of an hour, with all the hosts behind it."""


Connection = SshConnection | ControlMaster


@dataclass(frozen=True, slots=True)
class JumpHost:
    """A connection that others go through."""

    connection: Connection
    turns: asyncio.Semaphore


class Connector:
    """Makes the SSH connections of one fleet."""

    def __init__(self, file: str | None = None) -> None:
        self._file = file
        self._turns = asyncio.Semaphore(EVALUATED_AT_ONCE)
        self._handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self._jump_hosts: dict[Route, Shared[JumpHost]] = {}
        self._identities = Identities()

    async def connect(self, host: Host, stages: Stages, command: str) -> Connection:
        """Connect through the stages up to authenticated; raises HostError.

        The configuration is evaluated for a `command`, which is to be run there.
        """
        destination = Destination(host.ssh_name, host.user, host.port)
        bound_s = stages.timeout_s * PATIENT
        late = f"`ssh -G {destination.name}` did not end within {bound_s:g} s"
        hint = "does a Match exec in the SSH configuration hang, or CanonicalizeHostname on DNS?"
        async with self._turns, stages.enter(HostState.RESOLVING, late, hint, bound_s=bound_s):
            try:
                way = await route(destination, this_machine(self._file), command)
            except ConfigurationError as error:
                raise stages.error(*refusals.configuration(error, self._file)) from error
        return await self._reach(way, stages)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        for each in self._jump_hosts.values():
            if jump_host := await each.close():
                await jump_host.connection.close()

    async def _reach(self, route: Route, stages: Stages) -> Connection:
        """Connect to the last host of a route, or take up the connection that an ssh holds."""
        configuration = route[-1]
        if path := configuration.word("controlpath"):
            master = ControlMaster(path, configuration.again)
            late = f"the ssh at {path} does not answer"
            async with stages.enter(HostState.CONNECTING, late, "end it, and log in again"):
                if await master.is_alive():
                    return master
        if configuration.not_honoured:
            raise stages.error(*refusals.not_honoured(configuration))
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
                if not (left and patient and refusals.was_dropped(error)):
                    raise await self._refusal(login, error, stages) from error
                stages.dropped += 1
                await asyncio.sleep(random.uniform(0.05, 0.15) * (DROPPED_TRIES - left))
        raise AssertionError("the last try returns or raises")

    async def _log_in(self, login: Login, jump: JumpHost | None, stages: Stages) -> SshConnection:
        """Make one connection: through a jump host, a ProxyCommand, or directly."""
        configuration, where = login.configuration, login.configuration.where
        late = f"{where} took the connection, but said nothing as an SSH server"
        hint = "is that port sshd's? Write the right one: host:port"
        command, through = configuration.proxy_command, None
        if jump and isinstance(jump.connection, ControlMaster):
            command = jump.connection.proxy_command(configuration.hostname, configuration.port)
        elif jump and isinstance(jump.connection, SshConnection):
            through = jump.connection
        async with self._turns:
            algorithms = await login.keys.algorithms()
        async with AsyncExitStack() as opened:
            sock = None
            opened.push_async_exit(login.close)
            if command and not through:
                login.proxy = Proxy(command, await Askpass(stages).start())
                opened.push_async_callback(login.proxy.close)
                sock = login.proxy.socket
                late, hint = f"its ProxyCommand did not lead to {where} in time", f"try: {command}"
            elif not through:
                sock = await open_socket(configuration, stages)
                login.address = sock.getpeername()[0].partition("%")[0]
            if sock:
                opened.callback(sock.close)
            options = options_for(login, algorithms, sock)
            await login.turn.enter_async_context(jump.turns if jump else self._handshakes)
            async with login.turn, stages.enter(HostState.AUTHENTICATING, late, hint):
                connection = await asyncssh.connect(**options, tunnel=through and through.ssh)
            if not login.is_trusted:
                connection.abort()
                raise asyncssh.HostKeyNotVerifiable("asyncssh did not have it checked")
            opened.pop_all()
        await login.close()
        return SshConnection(connection, configuration.environment, through, login.proxy)

    async def _refusal(self, login: Login, error: Exception, stages: Stages) -> HostError:
        """Describe a failed login."""
        configuration, dropped = login.configuration, refusals.was_dropped(error)
        if login.proxy and dropped:
            said = await login.proxy.last_log_lines()
            return stages.error(*refusals.proxy(login.proxy.command, said), transient=True)
        if login.is_trusted and isinstance(error, asyncssh.DisconnectError) and not dropped:
            used = (*configuration.paths("identityfile"), configuration.agent)
            problems = {
                path: why for path, why in self._identities.problems.items() if path in used
            }
            return stages.error(*refusals.login(str(error), configuration, problems))
        if login.heard_version and dropped and login.shown is None:
            said_nothing = "it ended the key exchange"
            return stages.error(*refusals.key_exchange(configuration.where, said_nothing))
        return stages.error(*refusals.handshake(error, configuration.where), transient=True)

    async def _jump_host(self, route: Route, stages: Stages) -> JumpHost:
        """Return the shared connection to the last host of a route."""
        shared = self._jump_hosts.setdefault(
            route, Shared(lambda made: not made.connection.is_lost)
        )
        try:
            return await shared.get(partial(self._open_jump_host, route, stages))
        except HostError as error:
            reason = f"its jump host {route[-1].login_name}: {error.reason}"
            raise stages.error(reason, error.hint, transient=error.transient) from error

    async def _open_jump_host(self, route: Route, stages: Stages) -> JumpHost:
        """Connect to a jump host, itself through those before it."""
        made = await self._reach(route, stages)
        made.keep_alive(JUMP_KEEPALIVE_S, JUMP_KEEPALIVES)
        return JumpHost(made, asyncio.Semaphore(THROUGH_A_JUMP_HOST))
