"""Whose GPUs are, and what each user has. Pure.

`gputui who` prints what the screen shows.
"""

from collections import defaultdict
from collections.abc import Iterable

from gputui.model.frozen import frozen
from gputui.model.readings import (
    DeviceReading,
    claim_text,
    in_use,
    is_free,
    unseen_bytes,
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
    memory_used_bytes: float
    """What is theirs; of a GPU that several have, the part that their processes hold."""
    power_w: float
    """As the memory."""
    idle_s: float
    """How long these have computed nothing, together."""

    @property
    def memory_bytes(self) -> tuple[float, int]:
        """The memory that is theirs, and all that these GPUs have."""
        total = sum(device.memory_total_bytes or 0 for _, device in self.devices)
        return self.memory_used_bytes, total


def user_shares(device: DeviceReading) -> dict[str, float]:
    """Return the part of a GPU that each user has: of the memory that their processes hold.

    Where none of them is known to hold any, they have equal parts.
    """
    held = dict.fromkeys(users(device), 0)
    for process in device.processes:
        if (user := process.user or "unknown") in held:
            held[user] += process.memory_bytes or 0
    if (holder := (device.claim and device.claim.user) or "unknown") in held:
        held[holder] += unseen_bytes(device)
    whole = sum(held.values())
    return {user: part / whole if whole else 1 / len(held) for user, part in held.items()}


def gpu_sums(
    devices: Iterable[tuple[str, DeviceReading]],
    now: float,
    *,
    by_host: bool = False,
) -> list[GpuSum]:
    """Return the sum over the devices of each user, or of each host.

    Those with the most GPUs come first; one GPU may be shared by several users, whose idle time
    begins when they had it.
    """
    found: dict[str, list[tuple[str, DeviceReading, float]]] = defaultdict(list)
    for name, device in devices:
        for each, share in ({name: 1.0} if by_host else user_shares(device)).items():
            found[each].append((name, device, share))
    sums = []
    for user, some in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        starts = [
            max(device.idle_since, 0.0 if by_host else used_since(device, user) or 0.0)
            for _, device, _ in some
            if device.idle_since is not None
        ]
        sums.append(
            GpuSum(
                user,
                tuple((name, device) for name, device, _ in some),
                sum(share * (device.memory_used_bytes or 0) for _, device, share in some),
                sum(share * (device.power_w or 0.0) for _, device, share in some),
                sum(max(0.0, now - start) for start in starts),
            )
        )
    return sums
