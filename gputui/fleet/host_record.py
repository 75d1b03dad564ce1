"""What is to be seen of a host: its state and why, what its agent told, and its lease."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from gputui.protocol.agent import Facts, Telemetry
from gputui.snapshot import HostState, HostStatus


class HostRecord:
    """The one record of how a host is; tells whenever it changes."""

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        self.facts: Facts | None = None
        self.telemetry: Telemetry | None = None
        self.lease_over = False
        self._status = HostStatus(name, HostState.RESOLVING, time.time())
        self._changed = changed
        self._lease_timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> HostState:
        """Where the host is on its way."""
        return self._status.state

    def status(self, address: str) -> HostStatus:
        """Return all that a snapshot says of the host; its devices as the agent reports them."""
        if self.telemetry is None:
            devices = self.facts.devices if self.facts else ()
            return replace(self._status, address=address, devices=devices)
        return replace(
            self._status,
            address=address,
            reading=self.telemetry.host,
            read_at=self.telemetry.at,
            devices=self.telemetry.devices,
        )

    def become(
        self,
        state: HostState,
        reason: str = "",
        hint: str = "",
        *,
        stderr_tail: tuple[str, ...] = (),
        failed_stage: str = "",
    ) -> None:
        """Change the state, or what is said of it."""
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
        self._changed()

    def warn(self, warnings: tuple[str, ...]) -> None:
        """Replace the warnings; seen with the next change of state."""
        self._status = replace(self._status, warnings=warnings)

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
