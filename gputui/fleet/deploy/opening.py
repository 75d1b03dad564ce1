"""From a host to the link of its agent: the relay as a child here, or over SSH, pack and all.

What the hosts of one fleet have in common (the pack, the SSH connections to jump hosts) is in
`Shared`. asyncssh is imported when the first host needs it, and in a thread.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gputui.errors import HostError
from gputui.fleet import checks, importing
from gputui.fleet.addresses import is_link_local, own_end
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.pack import Pack, load_pack
from gputui.fleet.link import AgentLink, LocalStream
from gputui.fleet.settings import FleetSettings
from gputui.fleet.stages import Stages
from gputui.hosts import Host
from gputui.process.search_path import own_python
from gputui.protocol.agent import MARKER
from gputui.snapshot import HostState

if TYPE_CHECKING:
    from gputui.fleet.ssh.connector import Connector

LOOPBACK = "127.0.0.1"
BOOTSTRAP = "gputui bootstrap HOSTS makes one that fits"


@dataclass(frozen=True, slots=True)
class Opened:
    """A link that has shown its marker, and the addresses of its two ends."""

    link: AgentLink
    local_address: str
    far_address: str
    clock_ahead_s: float | None = None
    """How far the host's clock is ahead of ours; None for this machine."""


class Opener(Protocol):
    """Opens links to agents, for all hosts of one fleet."""

    async def open(self, host: Host, stages: Stages) -> Opened:
        """Open a link; raises HostError with the stage it failed in."""

    async def close(self) -> None:
        """Close what the links had in common."""


class Shared:
    """Opens links over SSH, or as children here, and keeps what their hosts have in common."""

    def __init__(self, settings: FleetSettings, make_pack: Callable[[], Pack] = load_pack) -> None:
        self._settings = settings
        self._make_pack = make_pack
        self._pack: asyncio.Task[Pack] | None = None
        self._connector: asyncio.Task[Connector] | None = None

    async def pack(self) -> Pack:
        """Return the packed agent, made once; after a failure the next call tries again."""
        if self._pack is None or _failed(self._pack):
            self._pack = asyncio.create_task(asyncio.to_thread(self._make_pack))
        return await asyncio.shield(self._pack)

    async def connector(self) -> "Connector":
        """Return what makes SSH connections; the first call imports asyncssh."""
        if self._connector is None or _failed(self._connector):
            self._connector = asyncio.create_task(self._make_connector())
        return await asyncio.shield(self._connector)

    async def open(self, host: Host, stages: Stages) -> Opened:
        """Reach a host and start a relay there."""
        return await open_link(host, self._settings, self, stages)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        if self._connector is not None:
            await asyncio.wait([self._connector])
            if not _failed(self._connector):
                await self._connector.result().close()

    async def _make_connector(self) -> "Connector":
        make_connector = await asyncio.to_thread(_import_connector)
        return make_connector(self._settings.ssh_config)


def _failed(task: asyncio.Task[Any]) -> bool:
    """Whether a task has ended without a result."""
    return task.done() and (task.cancelled() or task.exception() is not None)


def _import_connector() -> "type[Connector]":
    """Import asyncssh."""
    with importing.alone:
        from gputui.fleet.ssh.connector import Connector
    return Connector


async def open_link(host: Host, settings: FleetSettings, shared: Shared, stages: Stages) -> Opened:
    """Reach the host and start a relay there; raises HostError with the stage it failed in."""
    if host.is_local:
        return await _open_local(host, settings, shared, stages)
    packing = asyncio.create_task(shared.pack())
    connector = await shared.connector()
    connection = await connector.connect(host, stages)
    late = f"it was reached, and then did nothing for {stages.timeout_s:g} s"
    try:
        async with stages.enter(HostState.PROBING, late):
            stream = await connection.run(remote.COMMAND)
            link = AgentLink(stream)
            greeting = await _start_relay(host, settings, stages, link, await packing)
    except BaseException:
        await asyncio.shield(connection.close())
        raise
    far_address = connection.far_address or greeting["address"]
    if is_link_local(far_address):
        await asyncio.shield(link.close())
        raise stages.error(
            f"it was reached at {far_address}, a link-local address that workers cannot use",
            "name it by another of its addresses",
        )
    return Opened(
        link,
        connection.local_address or own_end(greeting["client"]),
        far_address,
        greeting["ahead_s"],
    )


async def _open_local(
    host: Host, settings: FleetSettings, shared: Shared, stages: Stages
) -> Opened:
    """Start the relay as a child, from the installed package or, with python=, from the pack."""
    command = [*own_python("gputui.agent"), "relay"]
    async with stages.enter(HostState.PROBING, "its agent did not start"):
        if host.python:
            pack = await shared.pack()
            command = [str(Path(host.python).expanduser()), str(pack.path), "relay"]
        try:
            stream = await LocalStream.start(command, {"GPUTUI_CLUSTER": settings.cluster_id})
        except OSError as error:
            reason = f"{command[0]}: {error.strerror}"
            raise stages.error(reason, f"correct python=; {BOOTSTRAP}") from error
        link = AgentLink(stream)
        try:
            if await link.skip_to(MARKER) is None:
                raise await _silent_end(link, stages, "its agent could not be started")
        except BaseException:
            await asyncio.shield(link.close())
            raise
    return Opened(link, LOOPBACK, LOOPBACK)


async def _start_relay(
    host: Host, settings: FleetSettings, stages: Stages, link: AgentLink, pack: Pack
) -> dict[str, Any]:
    """Have the loader on the host start the relay; returns its greeting.

    The greeting is python, version, send, address and, added here, ahead_s.
    """
    interpreters = interpreters_for(host)
    order = {
        "version": settings.versions.python,
        "hash": pack.hash,
        "size": len(pack.data),
        "cluster": settings.cluster_id,
        "others": interpreters[1:],
    }
    link.stream.write(remote.opening(interpreters, remote.script("loader.py"), order))
    answer = await link.skip_to(remote.GREETING)
    if answer is None:
        raise await _no_python(host, interpreters, link, stages)
    greeting: dict[str, Any] = json.loads(answer)
    greeting["ahead_s"] = greeting["time"] - time.time()
    wrong = checks.python_problem(greeting["python"], greeting["version"], settings.versions)
    if wrong:
        raise stages.error(wrong.reason, wrong.hint)
    if greeting["send"]:
        link.stream.write(pack.data)
        await link.stream.drain()
    if await link.skip_to(MARKER) is None:
        raise await _silent_end(link, stages, "its agent could not be started")
    return greeting


def interpreters_for(host: Host) -> list[str]:
    """Return the interpreters to try on a host, in order."""
    if host.python:
        return [host.python]
    return [sys.executable, f"{remote.BOOTSTRAP_ENVIRONMENT}/bin/python", "python3"]


async def _no_python(
    host: Host, interpreters: list[str], link: AgentLink, stages: Stages
) -> HostError:
    """Return why no interpreter answered."""
    status = await link.stream.exit_status()
    if status != remote.NO_PYTHON:
        return await _silent_end(link, stages, "the command that starts Python failed")
    if host.python:
        return stages.error(f"no such Python there: {host.python}", f"correct python=; {BOOTSTRAP}")
    return stages.error(
        f"no Python there (looked for {', '.join(interpreters)})",
        f"install Python there, or name one with python=; {BOOTSTRAP}",
    )


async def _silent_end(link: AgentLink, stages: Stages, reason: str) -> HostError:
    """Return the failure of a command that ended without the marker, with what it said."""
    status = await link.stream.exit_status()
    said = link.last_log_lines
    last = f": {said[-1]}" if said else ""
    code = ": the connection ended" if status is None else f" (exit status {status})"
    return stages.error(f"{reason}{code}{last}", stderr_tail=said, exit_status=status)
