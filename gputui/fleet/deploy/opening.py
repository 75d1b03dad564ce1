"""From a host to the channel of its agent: the relay as a child here, or over SSH, pack and all.

What the hosts of one fleet have in common (the pack, the SSH connections to jump hosts) is in
`AgentOpener`. asyncssh is imported when the first host needs it, and in a thread.
"""

import asyncio
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gputui.errors import HostError
from gputui.fleet import checks, importing
from gputui.fleet.addresses import is_link_local, own_end
from gputui.fleet.agent_channel import AgentChannel, LocalStream
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.pack import Pack, load_pack
from gputui.fleet.fleet_settings import FleetSettings
from gputui.fleet.stages import PATIENT, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from gputui.process.background import Shared
from gputui.process.search_path import own_python
from gputui.protocol.agent import MARKER

if TYPE_CHECKING:
    from gputui.fleet.ssh.connector import Connection, Connector

LOOPBACK = "127.0.0.1"
BOOTSTRAP = "gputui bootstrap HOSTS makes one that fits"


@dataclass(frozen=True, slots=True)
class OpenedAgent:
    """A channel that has shown its marker, and the addresses of its two ends."""

    channel: AgentChannel
    local_address: str
    far_address: str
    clock_ahead_s: float | None = None
    """How far the host's clock is ahead of ours; None for this machine."""
    shell_s: float = 0.0
    """How long the host's login shell and Python took to start."""
    places: Mapping[str, Any] = field(default_factory=dict)
    """What `loader.places` says of the folders there; {} for this machine."""
    compressed: bool = False
    """Whether the agent is to compress what it sends: it leaves its machine."""


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
        settings = self._settings
        if host.is_local:
            return await _open_local(host, settings, self, stages)
        connector = await self.connector()
        connection = await connector.connect(host, stages, remote.COMMAND)
        try:
            channel, greeting = await _start_relay(host, settings, stages, connection, self)
        except BaseException:
            await asyncio.shield(connection.close())
            raise
        far_address = connection.far_address or greeting["address"]
        if is_link_local(far_address):
            await asyncio.shield(channel.close())
            raise stages.error(
                f"it was reached at {far_address}, a link-local address that workers cannot use",
                "name it by another of its addresses",
            )
        return OpenedAgent(
            channel,
            connection.local_address or own_end(greeting["client"]),
            far_address,
            greeting["ahead_s"],
            greeting["took_s"],
            greeting["places"],
            compressed=True,
        )

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        if connector := await self._connector.close():
            await connector.close()

    async def _make_connector(self) -> "Connector":
        make_connector = await asyncio.to_thread(_import_connector)
        return make_connector(self._settings.ssh_config)


def _import_connector() -> "type[Connector]":
    """Import asyncssh."""
    with importing.alone:
        from gputui.fleet.ssh.connector import Connector
    return Connector


async def _open_local(
    host: Host, settings: FleetSettings, shared: AgentOpener, stages: Stages
) -> OpenedAgent:
    """Start the relay as a child, from the installed package or, with python=, from the pack."""
    command = [*own_python("gputui.agent"), "relay"]
    late = f"its agent did not start within {stages.timeout_s:g} s"
    async with stages.enter(HostState.PROBING, late):
        if host.python:
            pack = await shared.pack()
            command = [str(Path(host.python).expanduser()), str(pack.path), "relay"]
        environ = {"GPUTUI_CLUSTER": settings.cluster_id}
        if host.setup:
            environ["GPUTUI_FIND"] = f"exec {shlex.join(command)}"
            shell = os.environ.get("SHELL") or "/bin/sh"
            command = [shell, "-c", f'{host.setup} && exec sh -c "$GPUTUI_FIND"']
        try:
            stream = await LocalStream.start(command, environ)
        except OSError as error:
            reason = f"{command[0]}: {error.strerror}"
            raise stages.error(reason, f"correct python=; {BOOTSTRAP}") from error
        channel = AgentChannel(stream)
        try:
            if await channel.skip_to(MARKER) is None:
                raise await _silent_end(channel, stages, "its agent could not be started")
        except BaseException:
            await asyncio.shield(channel.close())
            raise
    return OpenedAgent(channel, LOOPBACK, LOOPBACK)


async def _start_relay(
    host: Host,
    settings: FleetSettings,
    stages: Stages,
    connection: "Connection",
    shared: AgentOpener,
) -> tuple[AgentChannel, dict[str, Any]]:
    """Have the loader on the host start the relay; returns its channel and the loader's greeting.

    The greeting is as `loader.py` makes it, with ahead_s and took_s. A login shell may take longer
    than any other stage: for a lock that all hosts of a cluster want.
    """
    late = f"its login shell did not start Python within {stages.timeout_s * PATIENT:g} s"
    hint = f"does `ssh {host.ssh_name} true` return? Its shell may wait for input or for a lock"
    async with stages.enter(HostState.PROBING, late, hint, bound_s=stages.timeout_s * PATIENT):
        pack = await shared.pack()
        try:
            stream = await connection.run(remote.COMMAND)
        except OSError as error:
            raise stages.error(
                f"it let us in and opened no session: {error}",
                "let its sshd_config allow one: MaxSessions, ForceCommand",
                transient=True,
            ) from error
        channel = AgentChannel(stream)
        greeting = await _greet(host, settings, stages, channel, pack)
    late = f"upload of the agent stalled for {stages.timeout_s:g} s"
    async with stages.enter(HostState.PROBING, late):
        if greeting["send"]:
            await _send(pack, stages, channel)
    late = f"its agent did not start within {stages.timeout_s:g} s"
    async with stages.enter(HostState.PROBING, late):
        if await channel.skip_to(MARKER) is None:
            raise await _silent_end(channel, stages, "its agent could not be started")
    return channel, greeting


async def _greet(
    host: Host, settings: FleetSettings, stages: Stages, channel: AgentChannel, pack: Pack
) -> dict[str, Any]:
    """Send the loader, and return its greeting."""
    interpreters, nonce = interpreters_for(host), secrets.token_hex(8)
    order = {
        "version": settings.versions.python,
        "hash": pack.hash,
        "size": len(pack.data),
        "cluster": settings.cluster_id,
        "packages": [
            f"dask=={settings.versions.dask}",
            f"distributed=={settings.versions.distributed}",
        ],
        "others": interpreters[1:],
        "nonce": nonce,
    }
    opening = remote.opening(
        interpreters,
        remote.script("loader.py"),
        order,
        setup=host.setup,
        too_old=remote.greeting_of_an_old_python(nonce),
    )
    began_at = time.monotonic()
    channel.stream.write(opening)
    answer = await channel.skip_to(remote.GREETING + b" " + nonce.encode())
    if answer is None:
        raise await _no_python(host, interpreters, channel, stages)
    try:
        greeting = remote.parse_greeting(answer)
    except (ValueError, TypeError, RecursionError) as error:
        said = answer[:80].decode("utf-8", "replace")
        raise stages.error(f"its Python is not what it says: it greeted with {said!r}") from error
    greeting["ahead_s"] = greeting["time"] - time.time()
    greeting["took_s"] = time.monotonic() - began_at
    wrong = checks.python_problem(greeting["python"], greeting["version"], settings.versions)
    if wrong:
        raise stages.error(wrong.reason, wrong.hint)
    return greeting


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
