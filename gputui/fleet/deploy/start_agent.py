"""From a host to the channel of its agent: a relay as a child here, or over SSH or srun, packed.

What the hosts of one fleet have in common (the pack, the SSH connections to jump hosts) is in
`AgentOpener`. asyncssh is imported when the first host needs it. Commands that need agents but no
cluster have `lone_agents`.
"""

import asyncio
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from gputui.errors import HostError, ProtocolError
from gputui.fleet import checks, slurm
from gputui.fleet.addresses import LOOPBACK, own_end
from gputui.fleet.checks import Verdict
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.remote import Pack, load_pack
from gputui.fleet.session import (
    AgentChannel,
    Greeting,
    HostConnection,
    LocalStream,
    OpenedAgent,
)
from gputui.fleet.ssh.connector import Connector
from gputui.fleet.stages import PATIENT, FleetSettings, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from gputui.process.background import Shared
from gputui.process.search_path import own_python
from gputui.protocol.agent import MARKER
from gputui.protocol.typed_codec import decode

BOOTSTRAP = "gputui bootstrap HOSTS makes one that fits"


class Opener(Protocol):
    """Opens channels to agents, for all hosts of one fleet."""

    async def open(self, host: Host, stages: Stages) -> OpenedAgent:
        """Open a channel; raises HostError with the stage it failed in."""

    async def close(self) -> None:
        """Close what the channels share."""


class AgentOpener:
    """Opens channels to other machines or children here, and keeps what they have in common."""

    def __init__(self, settings: FleetSettings, make_pack: Callable[[], Pack] = load_pack) -> None:
        self._settings = settings
        self._make_pack = partial(asyncio.to_thread, make_pack)
        self._pack = Shared[Pack]()
        self._connector: Connector | None = None

    async def pack(self) -> Pack:
        """Return the packed agent, made once; after a failure the next call tries again."""
        return await self._pack.get(self._make_pack)

    async def open(self, host: Host, stages: Stages) -> OpenedAgent:
        """Reach a host and start a relay there; raises HostError with the stage it failed in."""
        self._pack.begin(self._make_pack)
        if host.is_local:
            return await self._open_here(host, stages)
        connection = await self.connect(host, stages)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(connection.close)
            async with starting_python(host, stages):
                pack = await self.pack()
                try:
                    channel = AgentChannel(await connection.run(remote.COMMAND))
                    stages.progress("waiting for its login shell")
                except OSError as error:
                    reason = f"it let us in and opened no session: {error}"
                    hint = "let its sshd_config allow one: MaxSessions, ForceCommand"
                    raise stages.error(reason, hint, transient=True) from error
                greeting = await self._greet(host, stages, channel, pack)
                ahead_s = greeting.time - time.time()
            if greeting.send:
                late = f"upload of the agent stalled for {stages.timeout_s:g} s"
                async with stages.enter(HostState.PROBING, late):
                    await _send(pack, stages, channel)
            async with stages.enter(HostState.PROBING, _not_started(stages)):
                await _skip_to(MARKER, channel, stages, "its agent could not be started")
            far_address = connection.far_address or greeting.address
            undo.pop_all()
        local_address = connection.local_address or own_end(greeting.client)
        return OpenedAgent(channel, local_address, far_address, ahead_s, connection.forwarding)

    async def connect(self, host: Host, stages: Stages) -> HostConnection:
        """Reach another machine in the way that its line says; raises HostError.

        Another way is a module like `fleet/slurm.py`, and a line here.
        """
        if host.slurm_job:
            return await slurm.connect(host, stages)
        self._connector = self._connector or Connector(self._settings.ssh_config)
        return await self._connector.connect(host, stages, remote.COMMAND)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        if self._connector is not None:
            await self._connector.close()

    async def _open_here(self, host: Host, stages: Stages) -> OpenedAgent:
        """Start the relay as a child, from the installed package or, with python=, the pack."""
        command = [*own_python("gputui.agent"), "relay"]
        environ = {**os.environ, "GPUTUI_CLUSTER": self._settings.cluster_id}
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
            await _skip_to(MARKER, channel, stages, "its agent could not be started")
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
            "packages": [f"dask=={versions.dask}", f"distributed=={versions.distributed}"],
            "others": interpreters[1:],
            "nonce": nonce,
        }
        channel.stream.write(
            remote.first_lines(
                interpreters,
                remote.script("loader.py"),
                order,
                setup=host.setup,
                cluster=self._settings.cluster_id,
            )
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


def starting_python(host: Host, stages: Stages) -> AbstractAsyncContextManager[None]:
    """Return the stage in which a host's login shell is to start Python.

    For a lock that all hosts of a cluster want, it may take long.
    """
    bound_s = stages.timeout_s * PATIENT
    late = f"its login shell did not start Python within {bound_s:g} s"
    hint = f"does `{host.by_hand} true` return? Its shell may wait for a lock or input"
    return stages.enter(HostState.PROBING, late, hint, bound_s=bound_s)


def _not_started(stages: Stages) -> str:
    return f"its agent did not start within {stages.timeout_s:g} s"


async def _skip_to(word: bytes, channel: AgentChannel, stages: Stages, reason: str) -> None:
    if await channel.skip_to(word) is None:
        raise await _silent_end(channel, stages, reason)


async def _send(pack: Pack, stages: Stages, channel: AgentChannel) -> None:
    """Send the pack; as long as it goes on arriving, it may take any time."""
    channel.stream.write(pack.data)
    for sent in range(0, len(pack.data), remote.PIECE_BYTES):
        await _skip_to(remote.TOOK, channel, stages, "the agent did not arrive")
        stages.progress(f"sending the agent: {100 * sent // len(pack.data)} %")


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
    hint = f"correct python=; {BOOTSTRAP}"
    if status != remote.NO_PYTHON and host.setup:
        ran = f"its login shell was to run: {host.setup}"
        return await _silent_end(channel, stages, "setup= or Python failed there", ran)
    if status != remote.NO_PYTHON:
        reason = "the command that starts Python failed"
        return await _silent_end(channel, stages, reason, hint if host.python else "")
    if host.python:
        return stages.error(f"no such Python there: {host.python}", hint)
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
    return stages.error(f"{reason}{code}{last}", hint, stderr_tail=said)
