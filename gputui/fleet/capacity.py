"""What of a host this cluster may use, and what is not the host's to report. Pure.

Called by the fleet whenever an agent says something: facts → `HostCapacity`; two lines of the
hosts file that are one machine; workers and GPUs of other hosts.
"""

from collections.abc import Iterable, Mapping

from gputui.fleet.checks import chosen_devices, used_by_others
from gputui.fleet.settings import FleetSettings
from gputui.hosts import Host
from gputui.plan import HostCapacity, PlannedDevice
from gputui.protocol.agent import (
    Facts,
    FromAgent,
    Telemetry,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import LogLines


def capacity(host: Host, facts: Facts, settings: FleetSettings) -> HostCapacity:
    """Return what the host gives: of its devices those chosen, and free where only such count."""
    return HostCapacity(
        devices=tuple(
            PlannedDevice(device.uuid, device.label)
            for device in chosen_devices(host, facts)
            if settings.busy != "skip" or not used_by_others(device)
        ),
        cpus=facts.cpus,
        memory_bytes=facts.memory_total_bytes,
    )


def same_machine(host: Host, facts: Facts, owners: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the host that has a GPU of this one, and a message; None where none has."""
    for device in chosen_devices(host, facts):
        owner = owners.get(device.uuid, host.name)
        if owner != host.name:
            gpu = f"GPU {device.label} ({device.uuid})"
            return owner, f"it is the same machine as {owner}: both have {gpu}"
    return None


def overreach(host: str, message: FromAgent, facts: Facts | None, owners: Mapping[str, str]) -> str:
    """Return what an agent may not say, because it is another host's; "" for all else."""
    names: Iterable[str] = ()
    match message:
        case WorkerStarted(name=name) | WorkerReady(name=name) | WorkerExited(name=name):
            names = (name,)
        case LogLines(worker=name):
            names = (name,)
        case Facts(running=running):
            names = (worker.name for worker in running)
        case Telemetry(devices=devices, workers=workers):
            names = (worker.name for worker in workers)
            own = {device.uuid for device in facts.devices} if facts else set()
            for device in devices:
                if device.uuid not in own and owners.get(device.uuid, host) != host:
                    return f"its agent reports {device.uuid}, a GPU of {owners[device.uuid]}"
    for name in names:
        if name.rpartition(":")[0] != host:
            return f"its agent reports {name!r}, which is no worker of this host"
    return ""
