"""The hosts of a fleet by name, and those lines of the hosts file that are one machine twice.

The fleet makes them; each reaches its agent by itself.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from gputui.fleet.addresses import HostAddress, is_loopback
from gputui.fleet.checks import chosen_devices
from gputui.fleet.host import FleetHost
from gputui.model.hosts import Host
from gputui.model.plan import HostCapacity
from gputui.model.readings import DeviceReading
from gputui.model.snapshot import HostState, HostStatus
from gputui.protocol.agent import (
    Facts,
    FromAgent,
    Telemetry,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import LogLines

ON_THE_WAY = (
    HostState.RESOLVING,
    HostState.CONNECTING,
    HostState.AUTHENTICATING,
    HostState.PROBING,
    HostState.CHECKING,
)


class HostTable(Mapping[str, FleetHost]):
    """The hosts, in the order of their lines."""

    def __init__(self) -> None:
        self._hosts: dict[str, FleetHost] = {}
        self._doubles: dict[str, HostStatus] = {}
        """Second lines for one machine."""
        self._owners: dict[str, str] = {}
        """GPU → the host that it is chosen on."""
        self._first: dict[str, str] = {}
        """GPU → the host that reported it first."""
        self._shared = False
        """Whether two hosts report one GPU: containers of one machine, say, which share it out."""

    def __getitem__(self, name: str) -> FleetHost:
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def statuses(self) -> tuple[HostStatus, ...]:
        """Every host as it is now, each GPU on one of them."""
        statuses = tuple(self._doubles.get(name) or each.status for name, each in self.items())
        return tuple(self._each_gpu_once(statuses)) if self._shared else statuses

    def _each_gpu_once(self, statuses: Iterable[HostStatus]) -> Iterator[HostStatus]:
        """Leave a GPU to the host that it is chosen on, else to the first that reports it."""
        seen: set[str] = set()
        for status in statuses:
            own = tuple(
                device
                for device in status.devices
                if self._owners.get(device.uuid, status.name) == status.name
                and device.uuid not in seen
            )
            seen |= {device.uuid for device in own}
            yield status if len(own) == len(status.devices) else replace(status, devices=own)

    @property
    def readings(self) -> dict[str, WorkerReading]:
        """The last reading of each worker."""
        return {
            reading.name: reading
            for fleet_host in self.values()
            if (telemetry := fleet_host.telemetry) is not None
            for reading in telemetry.workers
        }

    @property
    def coming(self) -> bool:
        """Whether any is connecting for the first time."""
        return any(status.state in ON_THE_WAY for status in self.statuses)

    def belongs(self, host: FleetHost) -> bool:
        """Return whether it is still one of these, and no second line."""
        return self.get(host.name) is host and host.name not in self._doubles

    def is_double(self, name: str) -> bool:
        """Return whether it is a second line for a machine, which has ended."""
        return name in self._doubles

    def add(self, host: FleetHost) -> None:
        """Add a host, in the place of the one of its name that has ended."""
        self._doubles.pop(host.name, None)
        self._hosts[host.name] = host

    def remove(self, name: str) -> FleetHost:
        """Forget a host, and return it: it is still to be stopped."""
        self._doubles.pop(name, None)
        self._disown(name)
        return self._hosts.pop(name)

    def capacities(self, names: Collection[str]) -> dict[str, HostCapacity]:
        """Return the capacities of hosts that are ready, or lost for less than their lease."""
        found = {}
        for name in (self.keys() & names) - self._doubles.keys():
            fleet_host = self[name]
            usable = fleet_host.state not in (*ON_THE_WAY, HostState.FAILED)
            capacity = fleet_host.record.capacity
            if usable and not fleet_host.lease_over and capacity is not None:
                found[name] = capacity
        return found

    def host_addresses(self) -> Iterator[HostAddress]:
        """Yield the addresses of every host's connection."""
        for name, fleet_host in self.items():
            given_up = fleet_host.state is HostState.FAILED or name in self._doubles
            record = fleet_host.record
            address = record.listen_address or record.far_address
            yield HostAddress(name, record.local_address, address, given_up=given_up)

    def workers_elsewhere(self, host: FleetHost) -> tuple[str, str]:
        """Return (whose, address) of the first other host whose workers others reach."""
        for name, other in self.items():
            address = other.record.listen_address
            used = other.state is not HostState.FAILED and name not in self._doubles
            if used and other is not host and address and not is_loopback(address):
                return f"the workers of {name}", address
        return "", ""

    def overreach(self, host: FleetHost, message: FromAgent) -> str:
        """Return why a message is refused, such as for another host's worker; "" if it is not."""
        return overreach(host.name, message, host.facts, self._owners)

    def take_gpus(self, host: FleetHost) -> tuple[FleetHost, str] | None:
        """Let a host have its GPUs; returns one that fails for being a machine twice, and why.

        That is the later line of two, unless it has been ready: what a host has stays its own.
        """
        assert host.facts
        self._disown(host.name)
        found = same_machine(host.host, host.facts, self._owners)
        failed = None
        if found is not None:
            owner, reason = self[found[0]], found[1]
            lines = list(self._hosts)
            if owner.was_ready or lines.index(owner.name) < lines.index(host.name):
                self._fail_double(host, reason)
                return host, reason
            reason = reason.replace(owner.name, host.name, 1)
            self._fail_double(owner, reason)
            failed = owner, reason
        self._owners |= {device.uuid: host.name for device in chosen_devices(host.host, host.facts)}
        for device in host.facts.devices:
            first = self._first.setdefault(device.uuid, host.name)
            self._shared = self._shared or first != host.name
        return failed

    def _fail_double(self, fleet_host: FleetHost, reason: str) -> None:
        self._disown(fleet_host.name)
        self._doubles[fleet_host.name] = HostStatus(
            name=fleet_host.name,
            state=HostState.FAILED,
            state_since=fleet_host.status.state_since,
            reason=reason,
            hint="remove one of the two lines",
            failed_stage=HostState.PROBING,
            address=fleet_host.record.far_address,
        )

    def _disown(self, name: str) -> None:
        self._owners = {uuid: owner for uuid, owner in self._owners.items() if owner != name}
        self._first = {uuid: first for uuid, first in self._first.items() if first != name}

    async def stop(self, grace_s: float) -> tuple[str, ...]:
        """Stop every agent; returns the hosts where something may be left a while."""
        names = list(self)
        ended = await asyncio.gather(*(self[name].stop(grace_s) for name in names))
        left = {name for name, gone in zip(names, ended, strict=True) if not gone}
        return tuple(left - self._doubles.keys())


def same_machine(host: Host, facts: Facts, owners: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the host that has a GPU of this one, and a message; None where none has."""
    for device in chosen_devices(host, facts):
        owner = owners.get(device.uuid, host.name)
        if owner != host.name:
            gpu = f"GPU {device.label} ({device.uuid})"
            return owner, f"it is the same machine as {owner}: both have {gpu}"
    return None


def overreach(host: str, message: FromAgent, facts: Facts | None, owners: Mapping[str, str]) -> str:
    """Return why a message is refused, such as for another host's worker; "" if it is not."""
    names: Iterable[str] = ()
    devices: tuple[DeviceReading, ...] = ()
    match message:
        case Telemetry(devices=devices, workers=workers):
            names = [worker.name for worker in workers]
            others = [each for each in devices if owners.get(each.uuid, host) != host]
            own = {device.uuid for device in facts.devices} if facts and others else set()
            for device in others:
                if device.uuid not in own:
                    return f"its agent reports {device.uuid}, a GPU of {owners[device.uuid]}"
        case WorkerStarted(name=name) | WorkerReady(name=name) | WorkerExited(name=name):
            names = (name,)
        case LogLines(worker=name):
            names = (name,)
        case Facts(running=running, devices=devices):
            names = (worker.name for worker in running)
    if len({device.uuid for device in devices}) < len(devices):
        return "its agent reports one GPU twice"
    for name in names:
        if name.rpartition(":")[0] != host:
            return f"its agent reports {name!r}, which is no worker of this host"
    return ""
