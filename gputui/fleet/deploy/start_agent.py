"""From a host to the channel of its agent: the relay as a child here, or over SSH, pack and all.

What the hosts of one fleet have in common (the pack, the SSH connections to jump hosts) is in
`AgentOpener`. asyncssh is imported when the first host needs it, and in a thread. Commands that
need agents but no cluster have `lone_agents`.
"""

import asyncio
import contextlib
import os
import secrets
import shlex
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gputui.errors import HostError, ProtocolError
from gputui.fleet import checks
from gputui.fleet.addresses import LOOPBACK, is_link_local, own_end
from gputui.fleet.checks import Verdict, chosen_devices
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.pack import Pack, load_pack
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.session import (
    NOWHERE,
    AgentChannel,
    AgentSession,
    LocalStream,
    OpenedAgent,
    Places,
    end,
)
from gputui.fleet.stages import PATIENT, Ask, Stages
from gputui.model.bounds import Line, Moment, Name
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading, Note
from gputui.model.snapshot import HostState
from gputui.process.background import Background, Shared, words
from gputui.process.search_path import own_python
from gputui.protocol.agent import (
    MARKER,
    Claimed,
    ClaimGpus,
    Facts,
    FromAgent,
    ReleaseGpus,
    StandInLine,
    Telemetry,
)
from gputui.protocol.typed_codec import decode

if TYPE_CHECKING:
    from gputui.fleet.ssh.connector import Connector

BOOTSTRAP = "gputui bootstrap HOSTS makes one that fits"
CLAIMED_S = 10.0
"""How long an agent may take to answer a claim."""

IMPORTING = threading.Lock()
"""Held while large libraries are imported off the main thread.

Two threads that import parts of cryptography at once, each from its own end, wait for each other
until Python ends one of them with `_DeadlockError`.
"""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What `loader.py` says before the agent starts; hosts may lie."""

    python: Line
    version: Name
    send: bool
    """Whether the pack is not there."""
    address: Name
    """The host's end of the SSH connection, and ours, as it sees them; "" for unknown."""
    client: Name
    time: Moment
    places: Places = NOWHERE


class Opener(Protocol):
    """Opens channels to agents, for all hosts of one fleet."""

    async def open(self, host: Host, stages: Stages) -> OpenedAgent:
        """Open a channel; raises HostError with the stage it failed in."""

    async def close(self) -> None:
        """Close what the channels share."""


class AgentOpener:
    """Opens channels over SSH, or as children here, and keeps what their hosts have in common."""

    def __init__(self, settings: FleetSettings, make_pack: Callable[[], Pack] = load_pack) -> None:
        self._settings = settings
        self._make_pack = partial(asyncio.to_thread, make_pack)
        self._pack = Shared[Pack]()
        self._connector = Shared["Connector"]()

    async def pack(self) -> Pack:
        """Return the packed agent, made once; after a failure the next call tries again."""
        return await self._pack.get(self._make_pack)

    async def connector(self) -> "Connector":
        """Return the connector for SSH; the first call imports asyncssh."""
        return await self._connector.get(self._make_connector)

    async def open(self, host: Host, stages: Stages) -> OpenedAgent:
        """Reach a host and start a relay there; raises HostError with the stage it failed in."""
        self._pack.begin(self._make_pack)
        if host.is_local:
            return await self._open_here(host, stages)
        connection = await (await self.connector()).connect(host, stages, remote.COMMAND)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(connection.close)
            # For a lock that all hosts of a cluster want, a login shell may take long.
            bound_s = stages.timeout_s * PATIENT
            late = f"its login shell did not start Python within {bound_s:g} s"
            hint = f"does `ssh {host.ssh_name} true` return? Its shell may wait for a lock or input"
            async with stages.enter(HostState.PROBING, late, hint, bound_s=bound_s):
                pack = await self.pack()
                try:
                    channel = AgentChannel(await connection.run(remote.COMMAND))
                    stages.progress("waiting for its login shell")
                except OSError as error:
                    raise stages.error(
                        f"it let us in and opened no session: {error}",
                        "let its sshd_config allow one: MaxSessions, ForceCommand",
                        transient=True,
                    ) from error
                began_at = time.monotonic()
                greeting = await self._greet(host, stages, channel, pack)
                took_s, ahead_s = time.monotonic() - began_at, greeting.time - time.time()
            if greeting.send:
                late = f"upload of the agent stalled for {stages.timeout_s:g} s"
                async with stages.enter(HostState.PROBING, late):
                    await _send(pack, stages, channel)
            async with stages.enter(HostState.PROBING, _not_started(stages)):
                await _skip_to_marker(channel, stages)
            far_address = connection.far_address or greeting.address
            if is_link_local(far_address):
                raise stages.error(
                    f"it was reached at {far_address}, a link-local address that workers "
                    "cannot use",
                    "name it by another of its addresses",
                )
            undo.pop_all()
        local_address = connection.local_address or own_end(greeting.client)
        places = greeting.places
        return OpenedAgent(
            channel, local_address, far_address, ahead_s, took_s, places, compressed=True
        )

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        if connector := await self._connector.close():
            await connector.close()

    async def _make_connector(self) -> "Connector":
        return (await asyncio.to_thread(_import_connector))(self._settings.ssh_config)

    async def _open_here(self, host: Host, stages: Stages) -> OpenedAgent:
        """Start the relay as a child, from the installed package or, with python=, the pack."""
        command = [*own_python("gputui.agent"), "relay"]
        environ = {"GPUTUI_CLUSTER": self._settings.cluster_id}
        async with stages.enter(HostState.PROBING, _not_started(stages)), AsyncExitStack() as undo:
            if host.python:
                pack = await self.pack()
                command = [str(Path(host.python).expanduser()), str(pack.path), "relay"]
            if host.setup:
                environ["GPUTUI_FIND"] = f"exec {shlex.join(command)}"
                shell = os.environ.get("SHELL") or "/bin/sh"
                command = [shell, "-c", f'{host.setup} && exec sh -c "$GPUTUI_FIND"']
            try:
                channel = AgentChannel(await LocalStream.start(command, environ))
            except OSError as error:
                reason = f"{command[0]}: {error.strerror}"
                raise stages.error(reason, f"correct python=; {BOOTSTRAP}") from error
            undo.push_async_callback(channel.close)
            await _skip_to_marker(channel, stages)
            undo.pop_all()
        return OpenedAgent(channel, LOOPBACK, LOOPBACK)

    async def _greet(
        self, host: Host, stages: Stages, channel: AgentChannel, pack: Pack
    ) -> Greeting:
        """Send the loader, and return its greeting."""
        versions, nonce = self._settings.versions, secrets.token_hex(8)
        interpreters = interpreters_for(host)
        order = {
            "version": versions.python,
            "hash": pack.hash,
            "size": len(pack.data),
            "cluster": self._settings.cluster_id,
            "packages": [f"dask=={versions.dask}", f"distributed=={versions.distributed}"],
            "others": interpreters[1:],
            "nonce": nonce,
        }
        source, too_old = remote.script("loader.py"), remote.greeting_of_an_old_python(nonce)
        channel.stream.write(
            remote.first_lines(interpreters, source, order, setup=host.setup, too_old=too_old)
        )
        answer = await channel.skip_to(remote.GREETING + b" " + nonce.encode())
        if answer is None:
            raise await _no_python(host, interpreters, channel, stages)
        said = answer.decode("utf-8", "replace").strip()
        try:
            greeting: Greeting = decode(f'["Greeting",{said}]'.encode(), Greeting)
        except ProtocolError as error:
            problem = f"its Python is not what it says: it greeted with {said[:80]!r}"
            raise stages.error(problem) from error
        python = checks.python(host, greeting.python, greeting.version, versions)
        if python.verdict is Verdict.BAD:
            raise stages.error(python.text, python.hint)
        return greeting


class LoneAgent:
    """The agent of a host without a cluster, and its GPUs as they were read last."""

    def __init__(
        self, host: Host, opened: OpenedAgent, stages: Stages, settings: FleetSettings
    ) -> None:
        """Begin to follow the agent."""
        self.host, self.opened = host, opened
        self.facts: Facts
        self.devices: tuple[DeviceReading, ...] = ()
        self.dropped = stages.dropped
        self.lost = ""
        """Why the agent is gone; "" while it runs."""
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once its facts are there; a HostError where it does not report any."""
        self._stages = stages
        self._claimed: asyncio.Queue[Claimed] = asyncio.Queue()
        session = AgentSession(opened, stages, settings, self._received, lambda quiet_s: None)
        self.ask = session.ask
        self._tasks = Background(self._lose, logged=False)
        self._tasks.start(session.attend(self._introduce(session)), f"the agent of {host.name}")

    async def _introduce(self, session: AgentSession) -> None:
        """Send the first message to an agent that is to start no worker."""
        stages = self._stages
        late = f"its agent started and then said nothing for {stages.timeout_s:g} s"
        async with stages.enter(HostState.PROBING, late):
            await session.configure(self.host, only_examined=True)
        self.up.set_result(None)

    def _received(self, message: FromAgent) -> None:
        match message:
            case Facts():
                self.facts, self.devices = message, chosen_devices(self.host, message.devices)
            case Telemetry():
                self.devices = chosen_devices(self.host, message.devices)
            case Claimed():
                self._claimed.put_nowait(message)

    def _lose(self, what: str, error: Exception) -> None:
        if not isinstance(error, HostError):
            error = self._stages.error(words(error))
        self.lost = error.reason
        self._claimed.put_nowait(Claimed(error=self.lost))
        if not self.up.done():
            self.up.set_exception(error)

    async def claim(self, uuids: Collection[str], note: Note) -> Claimed:
        """Claim all of these or none."""
        self.opened.channel.send(ClaimGpus(tuple(uuids), note))
        try:
            async with asyncio.timeout(CLAIMED_S):
                return await self._claimed.get()
        except TimeoutError:
            return Claimed(error="its agent does not answer")

    def release(self, uuids: Collection[str]) -> None:
        """End claims."""
        self.opened.channel.send(ReleaseGpus(tuple(uuids)))

    def stand_in_line(self, uuids: Collection[str], gpus: int, note: Note) -> None:
        """Wait for GPUs, after everybody who waits already; for none, leave the line."""
        self.opened.channel.send(StandInLine(tuple(uuids), gpus, note))

    async def close(self) -> None:
        """End the agent, and with it its claims."""
        await self._tasks.close()
        await end(self.opened.channel)
        await self.opened.channel.close()


@contextlib.asynccontextmanager
async def lone_agents(
    hosts: Iterable[Host], settings: FleetSettings, ask: Ask, opener: AgentOpener | None = None
) -> AsyncIterator[tuple[LoneAgent | HostError, ...]]:
    """Start an agent on every host; yield each that answered, or why it did not.

    All of them end with the block.
    """
    # Its agents hold claims for as long as their leases last, and silence ends neither earlier.
    settings = replace(
        settings, cluster_id=f"alone-{secrets.token_hex(4)}", silence_s=settings.lease_s
    )
    opener = opener or AgentOpener(settings)
    agents: list[LoneAgent] = []

    async def start(host: Host) -> LoneAgent | HostError:
        stages = Stages(host.name, settings.stage_timeout_s, ask=ask)
        try:
            agent = LoneAgent(host, await opener.open(host, stages), stages, settings)
            agents.append(agent)
            await agent.up
        except HostError as error:
            return error
        return agent

    try:
        yield tuple(await asyncio.gather(*map(start, hosts)))
    finally:
        await asyncio.shield(asyncio.gather(*(agent.close() for agent in agents)))
        await opener.close()


def _import_connector() -> "type[Connector]":
    """Import asyncssh."""
    with IMPORTING:
        from gputui.fleet.ssh.connector import Connector
    return Connector


def _not_started(stages: Stages) -> str:
    return f"its agent did not start within {stages.timeout_s:g} s"


async def _skip_to_marker(channel: AgentChannel, stages: Stages) -> None:
    if await channel.skip_to(MARKER) is None:
        raise await _silent_end(channel, stages, "its agent could not be started")


async def _send(pack: Pack, stages: Stages, channel: AgentChannel) -> None:
    """Send the pack; as long as it goes on arriving, it may take any time."""
    channel.stream.write(pack.data)
    pieces = len(pack.data) // remote.PIECE_BYTES
    for piece in range(pieces):
        if await channel.skip_to(remote.TOOK) is None:
            raise await _silent_end(channel, stages, "the agent did not arrive")
        stages.progress(f"sending the agent: {100 * (piece + 1) // pieces} %")


def interpreters_for(host: Host) -> list[str]:
    """Return the interpreters to try on a host, in order."""
    if host.python:
        return [host.python]
    if host.setup:
        return ["python3", "python", sys.executable]
    return [sys.executable, f"{remote.BOOTSTRAP_ENVIRONMENT}/bin/python", "python3"]


async def _no_python(
    host: Host, interpreters: list[str], channel: AgentChannel, stages: Stages
) -> HostError:
    """Return why no interpreter answered."""
    status = await channel.stream.exit_status()
    if host.setup and remote.SET_UP.decode() not in channel.banner:
        said = "; ".join(line for line in channel.last_log_lines if line)
        return stages.error(
            f"setup= failed there (exit status {status}): {said or 'it said nothing'}",
            f"its login shell was to run: {host.setup}",
            stderr_tail=channel.last_log_lines,
            exit_status=status,
        )
    if status != remote.NO_PYTHON:
        hint = f"correct python=; {BOOTSTRAP}" if host.python else ""
        return await _silent_end(channel, stages, "the command that starts Python failed", hint)
    if host.python:
        return stages.error(f"no such Python there: {host.python}", f"correct python=; {BOOTSTRAP}")
    return stages.error(
        f"no Python there (looked for {', '.join(interpreters)})",
        f"install Python there, or name one with python=; {BOOTSTRAP}",
    )


async def _silent_end(
    channel: AgentChannel, stages: Stages, reason: str, hint: str = ""
) -> HostError:
    """Return the failure of a command that ended without the marker, with its last lines."""
    status = await channel.stream.exit_status()
    said = tuple(filter(None, channel.last_log_lines))
    last = f": {said[-1]}" if said else ""
    code = ": the connection ended" if status is None else f" (exit status {status})"
    return stages.error(f"{reason}{code}{last}", hint, stderr_tail=said, exit_status=status)
