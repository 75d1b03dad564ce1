"""What of a host this cluster may use: its facts → `HostCapacity`; and hosts that are one machine.

Pure; called by the fleet whenever facts arrive.
"""

from collections.abc import Iterable

from gputui.fleet.checks import chosen_devices, used_by_others
from gputui.fleet.settings import FleetSettings
from gputui.hosts import Host
from gputui.plan import HostCapacity, PlannedDevice
from gputui.protocol.agent import Facts


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


def same_machines(found: Iterable[tuple[Host, Facts]]) -> dict[str, str]:
    """Return host → the reason, for every host that has a GPU of one before it in the file."""
    owners: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for host, facts in found:
        devices = chosen_devices(host, facts)
        for device in devices:
            if device.uuid in owners:
                first = owners[device.uuid]
                reasons[host.name] = (
                    f"it is the same machine as {first}: both have GPU {device.label} "
                    f"({device.uuid})"
                )
                break
        else:
            owners |= {device.uuid: host.name for device in devices}
    return reasons
