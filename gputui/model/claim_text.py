"""Claims in words: who holds a GPU, since when, for what and until when, and who waits. Pure."""

from collections.abc import Iterable

from gputui.model.plain_text import safe, span
from gputui.model.readings import DeviceReading, is_free, users

SHOWN = 8
"""How many GPUs of a queue are listed."""


def claim_text(device: DeviceReading, now: float) -> str:
    """Describe a GPU's claim: its holder, the note, the promised end, and who waits."""
    parts = []
    if device.claim:
        note = device.claim.note
        parts += [device.claim.user or "held, holder unknown"]
        parts += [f"({note.person}, unverified)"] * bool(note.person)
        parts += [note.text] * bool(note.text)
        parts += _promise(device, now)
    if device.waiting:
        parts.append(f"waiting: {', '.join(device.waiting)}")
    return safe(" · ".join(parts))


def _promise(device: DeviceReading, now: float) -> list[str]:
    """Describe the promised end; once it is over, how long the GPU has done nothing, too."""
    assert device.claim
    if (until := device.claim.note.until) is None:
        return []
    if until > now:
        return [f"for {span(until - now)} more"]
    idle = f", idle {span(now - device.idle_since)}" if device.idle_since is not None else ""
    return [f"over by {span(now - until)}{idle}"]


def used_since(device: DeviceReading) -> float | None:
    """Return since when a GPU has been claimed or used; None where that is not known."""
    starts = [each.since for each in device.processes if each.since]
    if device.claim and device.claim.note.since:
        starts.append(device.claim.note.since)
    return min(starts, default=None)


def queue_lines(devices: Iterable[tuple[str, DeviceReading]], now: float) -> list[str]:
    """Describe for one who waits, a line each, who has the GPUs, then who comes first."""
    lines, before = [], dict[str, None]()
    for host, device in devices:
        before |= dict.fromkeys(device.waiting[: device.ahead])
        if is_free(device):
            continue
        since = used_since(device)
        what = " · ".join(
            [
                ", ".join(users(device)) or "in use",
                *([f"since {span(now - since)}"] if since is not None else []),
                *([device.claim.note.text] if device.claim and device.claim.note.text else []),
                *(_promise(device, now) if device.claim else []),
            ]
        )
        lines.append(safe(f"  {host} {device.short_name}: {what}"))
    if more := lines[SHOWN:]:
        lines[SHOWN:] = [f"  … and {len(more)} more"]
    if before:
        lines.append(safe(f"  before you: {', '.join(before)}"))
    return lines
