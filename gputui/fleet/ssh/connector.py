"""SSH connections, one to each host, along the routes that ssh finds in its configuration.

ssh evaluates it (`configuration.py`) while asyncssh is imported, in a thread: that takes a tenth
of a second, in which a head has others to answer.
"""

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from gputui.errors import UsageError
from gputui.fleet.ssh.configuration import (
    CONFIGURATION_HINT,
    Destination,
    Route,
    route,
    this_machine,
)
from gputui.fleet.stages import PATIENT, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from gputui.process.background import Shared

if TYPE_CHECKING:
    from gputui.fleet.ssh.routes import Connection, Routes

IMPORTING = threading.Lock()
"""Held while asyncssh or cryptography is imported.

Two threads that import parts of cryptography at once, each from its own end, wait for each other
until Python ends one of them with `_DeadlockError`.
"""
EVALUATED_AT_ONCE = 32
"""The hosts of a large fleet are asked ssh about in turn, and waiting does not count as time."""


class Connector:
    """Makes the SSH connections of one fleet."""

    def __init__(self, file: str | None = None) -> None:
        self._here = this_machine(file)
        self._turns = asyncio.Semaphore(EVALUATED_AT_ONCE)
        self._import = partial(asyncio.to_thread, _import_routes)
        self._routes: Shared[Routes] = Shared()

    async def connect(self, host: Host, stages: Stages, command: str) -> "Connection":
        """Connect through the stages up to authenticated; raises HostError.

        The configuration is evaluated for a `command`, which is to be run there.
        """
        self._routes.begin(self._import)
        way = await self._way(host, stages, command)
        routes = await self._routes.get(self._import)
        return await routes.follow(way, stages)

    async def close(self) -> None:
        """Close the connections to jump hosts."""
        if routes := await self._routes.close():
            await routes.close()

    async def _way(self, host: Host, stages: Stages, command: str) -> Route:
        destination = Destination(host.ssh_name, host.user, host.port)
        bound_s = stages.timeout_s * PATIENT
        late = f"`ssh -G {destination.name}` did not end within {bound_s:g} s"
        hint = "does a Match exec in the SSH configuration hang, or CanonicalizeHostname on DNS?"
        async with self._turns, stages.enter(HostState.RESOLVING, late, hint, bound_s=bound_s):
            try:
                return await route(destination, self._here, command)
            except UsageError as error:
                reason = f"{self._here.file or 'the SSH configuration'}: {error}"
                raise stages.error(reason, CONFIGURATION_HINT) from error


def _import_routes() -> "Routes":
    with IMPORTING:
        from gputui.fleet.ssh.routes import Routes

    return Routes()
