"""Claims on GPUs between people, and which GPUs are free. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from gputui.model.readings import Claim, DeviceProcess, DeviceReading

IMPLIED_BYTES = 256 * 2**20
"""A process that holds more of a GPU's memory claims it, whatever it computes."""

IMPLIED_PERCENT = 10.0
"""A GPU that is busier than this is in use, though no process may be seen."""

DESKTOP = ("Xorg", "Xwayland", "gnome-shell", "kwin", "plasmashell", "sddm", "gdm", "cosmic-comp")
"""Programs of a desktop; they claim nothing."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Somebody who waits for `gpus` of `uuids`."""

    name: str
    holder: Claim
    uuids: tuple[str, ...]
    gpus: int


def implies_claim(process: DeviceProcess) -> bool:
    """Return whether a process uses a GPU so that others should leave it alone.

    >>> from gputui.model.readings import Owner
    >>> [implies_claim(DeviceProcess(1, Owner.OTHER, "a", command, size)) for command, size in (
    ...     ("python train.py", 2**30), ("/usr/lib/xorg/Xorg vt2", 2**30), ("python", 2**20))]
    [True, False, False]
    """
    program = (process.command or "").split(" ", 1)[0].rpartition("/")[2]
    if program.startswith(DESKTOP):
        return False
    return process.memory_bytes is None or process.memory_bytes >= IMPLIED_BYTES


def is_free(device: DeviceReading) -> bool:
    """Return whether a GPU is nobody's: no claim, no process that implies one, and idle."""
    return (
        device.usable
        and not (device.lost or device.stale)
        and device.claim is None
        and not any(map(implies_claim, device.processes))
        and (device.utilization_percent or 0.0) < IMPLIED_PERCENT
    )


def waiting_for(uuid: str, tickets: Iterable[Ticket]) -> tuple[str, ...]:
    """Return the users who wait for a GPU, the first first."""
    return tuple(each.holder.user or "unknown" for each in tickets if uuid in each.uuids)


def users(device: DeviceReading) -> tuple[str, ...]:
    """Return a GPU's users: the holder of its claim, then those of its processes."""
    claimed = [device.claim.user] if device.claim else []
    using = [process.user for process in device.processes if implies_claim(process)]
    return tuple(dict.fromkeys(user or "unknown" for user in (*claimed, *using)))
