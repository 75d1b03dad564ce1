"""Whose GPUs are, and what each user has. Pure.

`gputui who` prints what the screen shows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from gputui.model.frozen import frozen
from gputui.model.readings import (
    DeviceReading,
    claim_text,
    in_use,
    is_free,
    used_since,
    users,
)
from gputui.tui.rendering import Line, Part
from gputui.tui.rendering.format import MISSING, age, safe

IDLE_SHOWN_S = 60.0


def is_over(device: DeviceReading, now: float) -> bool:
    """Return whether the end that its holder promised is past."""
    until = device.claim.note.until if device.claim else None
    return until is not None and until < now


def owner_part(device: DeviceReading, now: float) -> Part:
    """Return the users of a GPU, with what was promised, and the role of that."""
    claim = claim_text(device, now)  # it names who waits, too
    named = [user for user in users(device) if device.claim is None or user != device.claim.user]
    if device.claim is None:
        usual = "free" if is_free(device) else MISSING
        words = [", ".join(named) or usual, *([claim] if claim else [])]
    else:
        words = [claim, *named]
    role = "" if in_use(device) else "dim"
    return safe(" · ".join(words)), "warn" if is_over(device, now) else role


def owner_line(device: DeviceReading, now: float) -> Line:
    """Describe in full whose a GPU is, since when, and for how long it has been idle."""
    text, role = owner_part(device, now)
    since, idle = used_since(device), device.idle_since
    more = f"  since {age(now - since)}" if since is not None else ""
    if idle is not None and now - idle >= IDLE_SHOWN_S and not is_over(device, now):
        more += f"  idle {age(now - idle)}"
    return [("user   ", "dim"), (text, role or "title"), (more, "dim")]


@frozen
class GpuSum:
    """What one user has on all hosts, or one host has."""

    name: str
    devices: tuple[tuple[str, DeviceReading], ...]
    """Each with its slot's name."""
    idle_s: float
    """How long these have computed nothing, together."""

    @property
    def memory_bytes(self) -> tuple[int, int]:
        """The memory used of these GPUs, and all that they have."""
        devices = [device for _, device in self.devices]
        used = sum(device.memory_used_bytes or 0 for device in devices)
        return used, sum(device.memory_total_bytes or 0 for device in devices)

    @property
    def power_w(self) -> float:
        """The power that these GPUs draw."""
        return sum(device.power_w or 0.0 for _, device in self.devices)


def gpu_sums(
    devices: Iterable[tuple[str, DeviceReading]],
    now: float,
    names: Callable[[str, DeviceReading], Iterable[str]] = lambda name, device: users(device),
) -> list[GpuSum]:
    """Return the sum over the devices of each name, by default of each user.

    Those with the most GPUs come first; one GPU may have several names.
    """
    found: dict[str, list[tuple[str, DeviceReading]]] = defaultdict(list)
    for name, device in devices:
        for each in names(name, device):
            found[each].append((name, device))
    sums = []
    for user, some in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        starts = [device.idle_since for _, device in some if device.idle_since is not None]
        sums.append(GpuSum(user, tuple(some), sum(now - start for start in starts)))
    return sums
