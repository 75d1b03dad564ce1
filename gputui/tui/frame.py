"""The lines around a view, as parts: status above, crumbs and keys below. Pure."""

from collections.abc import Iterable

from gputui.snapshot import ClusterState, HostState, SchedulerState, Snapshot
from gputui.tui import format as fmt
from gputui.tui.commands import Command, key_name
from gputui.tui.pane import Line, Part


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
