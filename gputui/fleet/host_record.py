"""A host as the fleet knows it: its line, its state and why, what its agent said, its lease."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from gputui.fleet.checks import chosen_devices, used_by_others
from gputui.fleet.fleet_settings import FleetSettings
from gputui.model.hosts import Host
from gputui.model.plain_text import safe
from gputui.model.plan import HostCapacity, PlannedDevice
from gputui.model.snapshot import HostState, HostStatus
from gputui.protocol.agent import Facts, Telemetry


class HostRecord:
    """The one record of how a host is; calls `changed` with every change of its state."""

    def __init__(self, host: Host, settings: FleetSettings, changed: Callable[[], None]) -> None:
        self.host = host
        self.facts: Facts | None = None
        self.telemetry: Telemetry | None = None
        self.capacity: HostCapacity | None = None
        """What this cluster may use of it; None before its agent has answered."""
        self.local_address = ""
        """Where the host reaches this machine: this end of the SSH connection."""
        self.far_address = ""
        """Where others reach the host: the far end of it. 127.0.0.1 for this machine."""
        self.listen_address = ""
        """Where its workers listen: there, or at its address of the version of IP of the others."""
        self.was_ready = False
        """Whether it has been ready, and not failed since."""
        self.lease_over = False
        self._settings = settings
        self._status = HostStatus(host.name, HostState.RESOLVING, time.time())
        self._shown: HostStatus | None = None
        self._changed = changed
        self._lease_timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> HostState:
        """The host's state."""
        return self._status.state

    @property
    def status(self) -> HostStatus:
        """All that a snapshot says of the host; its devices as the agent reports them."""
        if self._shown is None:
            self._shown = self._status_now()
        return self._shown

    def _status_now(self) -> HostStatus:
        status, telemetry = self._status, self.telemetry
        if telemetry is None:
            devices = self.facts.devices if self.facts else ()
            return replace(status, address=self.far_address, devices=devices)
        return replace(
            status,
            address=self.far_address,
            reading=telemetry.host,
            read_at=telemetry.at,
            devices=telemetry.devices,
        )

    def meet(self, facts: Facts) -> None:
        """Set the facts of the host."""
        self.facts, self._shown = facts, None
        self.capacity = capacity(self.host, facts, self._settings)

    def read(self, telemetry: Telemetry) -> None:
        """Set the last readings."""
        self.telemetry, self._shown = telemetry, None

    def reached(self, local_address: str, far_address: str) -> None:
        """Set the two ends of its connection."""
        if far_address != self.far_address:
            self.listen_address = ""
        self.local_address, self.far_address, self._shown = local_address, far_address, None

    def listens(self, address: str) -> None:
        """Set where its workers listen."""
        self.listen_address = address

    def become(
        self,
        state: HostState,
        reason: str = "",
        hint: str = "",
        *,
        stderr_tail: tuple[str, ...] = (),
        failed_stage: str = "",
    ) -> None:
        """Change the state or its reason."""
        if state in (HostState.READY, HostState.FAILED):
            self.was_ready = state is HostState.READY
        since = self._status.state_since if state is self.state else time.time()
        self._status = replace(
            self._status,
            state=state,
            state_since=since,
            reason=reason,
            hint=hint,
            stderr_tail=stderr_tail,
            failed_stage=failed_stage,
        )
        self._shown = None
        self._changed()

    def warn(self, warnings: tuple[str, ...]) -> None:
        """Replace the warnings; seen with the next change of state."""
        harmless = tuple(map(safe, warnings))
        self._status, self._shown = replace(self._status, warnings=harmless), None

    def lost(self, lease_left_s: float) -> None:
        """Note that nothing reaches the agent, which ends its workers when its lease is over."""
        if self._lease_timer is None and not self.lease_over:
            loop = asyncio.get_running_loop()
            self._lease_timer = loop.call_later(max(lease_left_s, 0.0), self._end_lease)

    def found(self) -> None:
        """Note that the agent is there, with the workers that its facts name."""
        self.forget_lease()
        self.lease_over = False

    def forget_lease(self) -> None:
        """Wait for no end of a lease any more."""
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    def _end_lease(self) -> None:
        self.lease_over = True
        self._changed()


def capacity(host: Host, facts: Facts, settings: FleetSettings) -> HostCapacity:
    """Return the host's capacity: the chosen devices, and with `busy: skip` only free ones."""
    return HostCapacity(
        devices=tuple(
            PlannedDevice(device.uuid, device.label)
            for device in chosen_devices(host, facts)
            if settings.busy != "skip" or not used_by_others(device)
        ),
        cpus=facts.cpus,
        memory_bytes=facts.memory_total_bytes,
    )
