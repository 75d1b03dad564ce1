"""The lines around a view, as parts: status above, crumbs and keys below. Pure."""

from collections import Counter
from collections.abc import Iterable
from statistics import fmean

from gputui.snapshot import ClusterState, HostState, SchedulerState, Snapshot
from gputui.tui import format as fmt
from gputui.tui.commands import Command, key_name
from gputui.tui.pane import Line, Part
from gputui.tui.slots import MARKS
from gputui.tui.watched import Watched


def status_line(snapshot: Snapshot | None, *, paused: bool, readonly: bool) -> Line:
    """Return the line that says whose cluster this is and how it is."""
    if snapshot is None:
        return (("gputui", "title"), ("  waiting for the cluster", "dim"))
    parts: list[Part] = [("gputui ", "dim"), (fmt.safe(snapshot.name), "title")]
    if snapshot.simulated:
        parts.append((" SIMULATED", "warn"))
    parts += [(" PAUSED", "warn")] if paused else []
    parts += [(" read-only", "dim")] if readonly else []
    parts += _state(snapshot)
    ready = sum(host.state is HostState.READY for host in snapshot.hosts)
    parts.append((f"  hosts {ready}/{len(snapshot.hosts)}", _role(ready, len(snapshot.hosts))))
    parts += _workers(snapshot)
    tasks = snapshot.scheduler
    parts.append((f"  tasks {fmt.count(tasks.tasks)}", ""))
    if tasks.queued:
        parts.append((f" ({fmt.count(tasks.queued)} queued)", "dim"))
    if snapshot.faces > 1:
        parts.append((f"  screens {snapshot.faces}", "dim"))
    return parts


def _workers(snapshot: Snapshot) -> list[Part]:
    up, wanted = snapshot.workers_up, snapshot.wanted_workers
    of = wanted if wanted is not None else len(snapshot.workers)
    parts: list[Part] = [(f"  workers {up}/{of}", _role(up, of))]
    if snapshot.adaptive:
        parts.append((" adaptive {}–{}".format(*snapshot.adaptive), "accent"))
    return parts


def _role(there: int, wanted: int) -> str:
    return "" if there >= wanted else "warn"


def _state(snapshot: Snapshot) -> list[Part]:
    scheduler = snapshot.scheduler
    if snapshot.state is ClusterState.FAILED:
        return [("  failed", "bad")]
    if scheduler.state is SchedulerState.LOST:
        return [("  scheduler lost", "bad")]
    if scheduler.state is SchedulerState.BUSY:
        return [(f"  scheduler busy {scheduler.busy_s:.0f}s", "warn")]
    role = "good" if snapshot.state is ClusterState.RUNNING else "accent"
    return [(f"  {snapshot.state.value}", role)]


def keys_line(commands: Iterable[Command], views: Iterable[tuple[str, str]], current: str) -> Line:
    """Return the line of keys: the views with the present one marked, then what can be done."""
    parts: list[Part] = []
    for key, name in views:
        role = "found" if name == current else ""
        parts += [(key, "key"), (name, role), (" ", "")]
    for command in commands:
        if command.hint and command.keys:
            parts += [(f" {key_name(command.keys[0])}", "key"), (f" {command.hint}", "dim")]
    return parts


def summary(watched: Watched, width: int) -> list[Line]:
    """Return what matters most, for a terminal too small for a view."""
    if watched.snapshot is None:
        return []
    states = Counter(slot.state for slot in watched.slots)
    parts: list[Part] = [(f"{len(watched.slots)} GPUs", "title")]
    for state, mark in MARKS.items():
        if states[state]:
            parts.append((f" {mark.shape}{states[state]} {state.value}", mark.role))
    devices = [slot.device for slot in watched.slots if slot.device is not None]
    known = [each.utilization_percent for each in devices if each.utilization_percent is not None]
    used = sum(device.memory_used_bytes or 0 for device in devices)
    total = sum(device.memory_total_bytes or 0 for device in devices)
    average = fmean(known) if known else None
    lines: list[Line] = [parts]
    lines.append([(f"util {fmt.number(average)}%  memory {fmt.memory(used, total)}", "")])
    groups = watched.snapshot.groups
    if groups:
        done, all_of_them = sum(g.finished for g in groups), sum(g.total for g in groups)
        room = max(4, width - 20)
        fraction = done / all_of_them if all_of_them else None
        lines.append([(fmt.bar(fraction, room), "busy"), (f" {fmt.count(done)} done", "")])
    for subject, kinds in watched.alarms.by_subject().items():
        lines.append([(f"{fmt.safe(subject)}: {kinds[0].value}", "warn")])
    return lines
