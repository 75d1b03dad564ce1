"""SSH connections with asyncssh, one to each host, as ssh itself would make them.

What the user's configuration says is evaluated by ssh (`evaluation.py`), and asyncssh is given
all of it explicitly, so that it reads no file by itself. Hosts that share a jump host share one
connection to it. Every failure is a HostError (`refusals.py`). Imported when the first
host needs it.
"""

import asyncio
import random
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import asyncssh

from gputui.errors import HostError
from gputui.fleet.ssh import refusals
from gputui.fleet.ssh.askpass import Askpass
from gputui.fleet.ssh.configuration import SshConfiguration
from gputui.fleet.ssh.connection import SshConnection
from gputui.fleet.ssh.control_master import ControlMaster
from gputui.fleet.ssh.evaluation import (
    ConfigurationError,
    Destination,
    Evaluator,
    Route,
)
from gputui.fleet.ssh.host_keys import HostKeys
from gputui.fleet.ssh.identities import Identities
from gputui.fleet.ssh.login import Login
from gputui.fleet.ssh.options import options_for
from gputui.fleet.ssh.sockets import Proxy, open_socket
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
        self._evaluator = Evaluator(file)
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
                route = await self._evaluator.route(destination, command)
            except ConfigurationError as error:
                raise stages.error(*refusals.configuration(error, self._file)) from error
        return await self._reach(route, destination, stages)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        for each in self._jump_hosts.values():
            if jump_host := await each.close():
                await jump_host.connection.close()

    async def _reach(self, route: Route, destination: Destination, stages: Stages) -> Connection:
        """Connect to the last host of a route, or take up the connection that an ssh holds."""
        target = Target(destination, route[-1], self._file)
        if path := target.configuration.word("controlpath"):
            master = ControlMaster(path, target.again)
            late = f"the ssh at {path} does not answer"
            async with stages.enter(HostState.CONNECTING, late, "end it, and log in again"):
                if await master.is_alive():
                    return master
        jump = await self._jump_host(route[:-1], stages) if route[:-1] else None
        return await self._connect(target, jump, stages)

    async def _connect(
        self, target: "Target", jump: JumpHost | None, stages: Stages
    ) -> SshConnection:
        """Make a connection; tries again where the server drops it at random."""
        configuration = target.configuration
        if configuration.not_honoured:
            raise stages.error(*refusals.not_honoured(configuration))
        command = configuration.proxy_command
        if jump and isinstance(jump.connection, ControlMaster):
            command = jump.connection.proxy_command(configuration.hostname, configuration.port)
        for left in reversed(range(DROPPED_TRIES)):
            asked = stages.asked
            keys = HostKeys(configuration, stages, target.again)
            async with self._turns:
                algorithms = await keys.algorithms()
            login = Login(
                configuration,
                keys.verify,
                self._identities,
                stages,
            )
            proxy = None
            try:
                if jump and isinstance(jump.connection, SshConnection):
                    return await self._handshake(
                        target,
                        login,
                        algorithms,
                        stages,
                        through=jump.connection,
                        turns=jump.turns,
                    )
                if command:
                    proxy = Proxy(command, await Askpass(stages).start())
                    return await self._handshake(target, login, algorithms, stages, proxy=proxy)
                sock = await open_socket(configuration, stages)
                return await self._handshake(target, login, algorithms, stages, sock=sock)
            except (OSError, ValueError, asyncssh.Error) as error:
                if login.refused:
                    raise login.refused from error
                patient = stages.asked > asked if login.heard_version else not proxy
                if left and patient and refusals.was_dropped(error):
                    stages.dropped += 1
                    await asyncio.sleep(random.uniform(0.05, 0.15) * (DROPPED_TRIES - left))
                    continue
                said = await proxy.last_log_lines() if proxy else None
                if said is not None and refusals.was_dropped(error):
                    reason, hint = refusals.proxy(command, said)
                    raise stages.error(reason, hint, transient=True) from error
                raise self._refusal(target, login, error, stages) from error
        raise AssertionError("the last try returns or raises")

    def _refusal(
        self,
        target: "Target",
        login: Login,
        error: Exception,
        stages: Stages,
    ) -> HostError:
        """Describe a failed handshake."""
        told = isinstance(error, asyncssh.DisconnectError) and not refusals.was_dropped(error)
        if login.is_trusted and told:
            configuration = target.configuration
            used = (*configuration.paths("identityfile"), configuration.agent)
            problems = {
                path: problem for path, problem in self._identities.problems.items() if path in used
            }
            return stages.error(
                *refusals.login(str(error), target.configuration, target.again, problems)
            )
        where = target.configuration.where
        if login.heard_version and refusals.was_dropped(error) and login.shown is None:
            return stages.error(*refusals.key_exchange(where, "it ended the key exchange"))
        return stages.error(*refusals.handshake(error, where), transient=True)

    async def _handshake(
        self,
        target: "Target",
        login: Login,
        host_keys: Sequence[str],
        stages: Stages,
        *,
        sock: socket.socket | None = None,
        through: SshConnection | None = None,
        turns: asyncio.Semaphore | None = None,
        proxy: Proxy | None = None,
    ) -> SshConnection:
        where = target.configuration.where
        late = f"{where} took the connection, but said nothing as an SSH server"
        hint = "is that port sshd's? Write the right one: host:port"
        if proxy:
            late, hint = f"its ProxyCommand did not lead to {where} in time", "try it alone"
        ours = proxy.socket if proxy else sock
        login.address = sock.getpeername()[0].partition("%")[0] if sock else ""
        options = options_for(target.configuration, login, host_keys, ours)
        if through:
            options["tunnel"] = through.ssh
        try:
            async with AsyncExitStack() as turn:
                await turn.enter_async_context(turns or self._handshakes)
                login.turn = turn
                async with stages.enter(HostState.AUTHENTICATING, late, hint):
                    connection = await asyncssh.connect(**options)
        except BaseException as error:
            if isinstance(error, asyncssh.ConnectionLost):
                await login.finish_verifying()
            if ours:
                ours.close()
            if proxy:
                await asyncio.shield(proxy.close())
            raise
        finally:
            await login.close()
        return SshConnection(
            connection,
            target.configuration.environment,
            through=through,
            proxy=proxy,
        )

    async def _jump_host(self, route: Route, stages: Stages) -> JumpHost:
        """Return the shared connection to the last host of a route."""
        shared = self._jump_hosts.setdefault(route, Shared(_alive))
        try:
            return await shared.get(partial(self._open_jump_host, route, stages))
        except HostError as error:
            reason = f"its jump host {route[-1].login_name}: {error.reason}"
            raise stages.error(reason, error.hint, transient=error.transient) from error

    async def _open_jump_host(self, route: Route, stages: Stages) -> JumpHost:
        """Connect to a jump host, itself through those before it."""
        last = route[-1]
        made = await self._reach(route, Destination(last.name, last.user, last.port), stages)
        made.keep_alive(JUMP_KEEPALIVE_S, JUMP_KEEPALIVES)
        return JumpHost(made, asyncio.Semaphore(THROUGH_A_JUMP_HOST))


@dataclass(frozen=True, slots=True)
class Target:
    """A host, as it was asked for and as the configuration has it."""

    destination: Destination
    configuration: SshConfiguration
    file: str | None

    @property
    def again(self) -> tuple[str, ...]:
        """The arguments with which ssh reaches the same host."""
        return self.destination.arguments(self.file)


def _alive(jump_host: JumpHost) -> bool:
    return not jump_host.connection.is_lost
