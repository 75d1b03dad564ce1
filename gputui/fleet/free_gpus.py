"""The free GPUs that a cluster takes: claimed before it starts workers there, and no others.

Which hosts that concerns: all where a number was asked for, else those of lines with gpus=free:N.
What a lost host gave is claimed again, wherever it is free then.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from gputui.errors import ClusterError
from gputui.fleet.checks import takes_free
from gputui.fleet.claiming import STAND, Held, HostClaims, hold, pick_free
from gputui.fleet.host import ON_THE_WAY, FleetHost
from gputui.fleet.stages import FleetSettings
from gputui.model.hosts import Host
from gputui.model.plan import HostCapacity
from gputui.model.readings import Note
from gputui.model.snapshot import HostState
from gputui.process.background import within

LOOK_S = 0.2
AGAIN_S = 5.0
"""How often one that had all of its GPUs, and lost some, looks whether others are free."""


class FreeGpus:
    """What one cluster has of the GPUs that it is to take where they are free."""

    def __init__(
        self,
        hosts: Mapping[str, FleetHost],
        settings: FleetSettings,
        scheduler_wanted: asyncio.Event,
        changed: Callable[[], None],
    ) -> None:
        """Take none before `scheduler_wanted`.

        Call `changed` when GPUs were taken, and when there is another reason for having too few.
        """
        self.lacking = ""
        """Why there are too few; "" once there are enough."""
        self.under_way = False
        """Whether it waits for hosts or GPUs."""
        self._hosts = hosts
        self._settings = settings
        self._wanted = settings.wanted
        self._changed = changed
        self._taken: dict[str, list[Held]] = {}
        """By host."""
        self._woken = asyncio.Event()
        self._scheduler_wanted = scheduler_wanted

    def capacity(self, host: FleetHost) -> HostCapacity | None:
        """Return the part of a host that the cluster may use; None while it has no GPU of it."""
        if host.capacity is None or not self._concerns(host.host):
            return host.capacity
        taken = {uuid for held in self._taken.get(host.name, ()) for uuid in held.uuids}
        devices = tuple(each for each in host.claims.devices if each.uuid in taken)
        return replace(host.capacity, devices=devices) if devices else None

    def look(self, host: FleetHost) -> bool:
        """Claim what is missing, after a host came, changed, was lost or removed.

        Returns whether its agent has ended, and with it the claims there.
        """
        gone = host.lease_over or host.name not in self._hosts
        ended = not all(held.lasts for held in self._taken.get(host.name, ()))
        if gone or ended or host.state is HostState.FAILED:
            for held in self._taken.pop(host.name, ()):
                held.release()
        if self._concerns(host.host):
            self.under_way = True
            self._woken.set()
        return ended

    async def run(self) -> None:
        """Claim GPUs whenever some are missing: at first it waits, later it looks again."""
        wait_s, again_s = self._wanted.wait_s, None
        while True:
            await within(again_s, self._woken.wait())
            self._woken.clear()
            if self._lacks():
                await self._take(time.monotonic() + wait_s, again_s)
                wait_s = 0.0
                again_s = again_s if self.lacking else AGAIN_S
            self.under_way = self._woken.is_set()
            self._changed()

    async def _take(self, until: float, again_s: float | None) -> None:
        """Claim what is missing, all or none; with `again_s` it is called again so often."""
        wanted = replace(self._wanted, count=max(0, self._wanted.count - self._number))
        while self._coming() and not pick_free(self._claims(), wanted):
            await asyncio.sleep(LOOK_S)
        if not self._lacks():
            return
        try:
            picked = await hold(self._claims(), wanted, self._note, self._say, until)
        except ClusterError as error:
            why, again = str(error), f"\n  it looks again every {AGAIN_S:g} s"
            self._say(why.removesuffix(f"\n  {STAND}") + again if again_s else why)
            return
        for held in picked:
            self._taken.setdefault(held.host.name, []).append(held)
        self.lacking = ""

    @property
    def _number(self) -> int:
        return sum(len(held.devices) for taken in self._taken.values() for held in taken)

    def _note(self) -> Note:
        return Note(f"cluster {self._settings.cluster}", time.time(), self._settings.promised_until)

    def _concerns(self, host: Host) -> bool:
        return self._scheduler_wanted.is_set() and takes_free(host, self._settings)

    def _lacks(self) -> bool:
        if self._wanted.count:
            return self._number < self._wanted.count
        return self._coming() or bool(self._claims())

    def _concerned(self) -> list[FleetHost]:
        """Return the hosts that are to give GPUs, or give more."""
        return [
            host
            for host in self._hosts.values()
            if self._concerns(host.host) and (self._wanted.count or host.name not in self._taken)
        ]

    def _claims(self) -> list[HostClaims]:
        return [each.claims for each in self._concerned() if each.state is HostState.READY]

    def _coming(self) -> bool:
        return any(each.state in ON_THE_WAY for each in self._concerned())

    def _say(self, why: str) -> None:
        if why != self.lacking:
            self.lacking = why
            self._changed()
