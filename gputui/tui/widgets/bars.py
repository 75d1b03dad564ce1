"""The lines around the body: status and banner above, breadcrumb and keys below.

The keys are one line of text: Textual's `Footer` mounts a widget for each, 32 ms whenever a key
begins or ceases to do something, as it does with most moves of the cursor.
"""

import time
from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import dropwhile
from textwrap import wrap

from rich.cells import cell_len
from textual.containers import Vertical

from gputui.model.alarms import Alarm, AlarmKind, without_workers
from gputui.model.series import Metric, Span
from gputui.model.snapshot import ClusterState, HostState, SchedulerState, Snapshot
from gputui.tui.commands import Command, key_name
from gputui.tui.rendering import Line, Part, fitted, spark, whole_fields
from gputui.tui.rendering import format as fmt
from gputui.tui.views import VIEWS
from gputui.tui.watched import FLEET, Playback, Watched
from gputui.tui.widgets import Pane

SAID_FOR_S = 6.0
MOST_TROUBLE, LINES_FOR_TROUBLE = 3, 8
"""Lines of trouble at most, and for how many lines of the terminal each of them may stand."""
MOST_SAID = 4
"""Most lines of a message."""


class TopBars(Vertical):
    """The cluster's state, the fleet's totals and troubles, and a banner."""

    DEFAULT_CSS = "TopBars { height: auto; } TopBars Pane { height: 0; }"

    def __init__(self) -> None:
        self._status, self._totals, self._banner = Pane(), Pane(id="totals"), Pane()
        super().__init__(self._status, self._totals, self._banner)

    def show(
        self, watched: Watched, played: Playback | None, *, paused: bool, readonly: bool
    ) -> None:
        """Draw the status."""
        width, height = self.app.size
        line = status_line(watched, width, paused=paused, readonly=readonly)
        past = [past_line(played, width)] if played else []
        self._status.put_whole([*past, whole_fields(line, width)])
        lines: list[Line] = []
        if height >= TOTALS_FROM and watched.snapshot.name:
            most = max(1, min(MOST_TROUBLE, (height - TOTALS_FROM) // LINES_FOR_TROUBLE))
            lines = [whole_fields(totals_line(watched, width), width)]
            lines += trouble_lines(watched, width, most)
        self._totals.put_whole(lines)

    def lose(self, status: str, sentence: str) -> None:
        """Show in red that the cluster does not answer."""
        self._status.put_whole([((fitted(f" {fmt.safe(status)}", self.app.size.width), "lost"),)])
        self.warn(sentence)

    def warn(self, text: str) -> None:
        """Show a banner until it is taken back with ""."""
        width = max(1, self.app.size.width - 2)
        lines = [line for each in text.splitlines() for line in wrap(fmt.safe(each), width)]
        self._banner.put_whole([((f" {line}", "bad"),) for line in lines])


class BottomBars(Vertical):
    """The view's state or the last message, and the keys that can be pressed."""

    DEFAULT_CSS = "BottomBars { height: auto; } BottomBars Pane { height: 1; }"

    def __init__(self) -> None:
        self._crumbs, self._keys = Pane(id="crumbs"), Pane(id="keys")
        super().__init__(self._crumbs, self._keys)
        self._said: list[Line] = []
        self._silence_at = 0.0

    def show(
        self, crumbs: Line, current: str, commands: Iterable[Command], dim: Collection[str]
    ) -> None:
        """Draw a view's description and the keys of these commands, some of them dim."""
        if time.monotonic() >= self._silence_at:
            self._said = []
        self._crumbs.put_whole(self._said or [crumbs])
        views = [(key, name) for name, (key, _) in VIEWS.items() if key]
        self._keys.put_whole(keys_lines(commands, views, current, self.app.size.width, dim))

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a message for some seconds."""
        words, width = fmt.safe(text.replace("\n", "; ")), max(1, self.size.width)
        lines = wrap(words, width, max_lines=MOST_SAID, placeholder=" …")
        self._said = [((line, "warn" if bad else "accent"),) for line in lines]
        self._silence_at = time.monotonic() + SAID_FOR_S
        self._crumbs.put_whole(self._said or [()])


def past_line(played: Playback, width: int) -> Line:
    """Return the line that says which moment of a run is shown, and how to go to others."""
    recorded = played.recorded
    then = datetime.fromtimestamp(recorded.began_at + played.second)
    gone, whole = fmt.elapsed(played.second), fmt.elapsed(recorded.seconds)
    parts: list[Part] = [(f" PAST {then:%a %d %b %H:%M:%S}  {gone} of {whole} ", "found")]
    for keys, does in (("[ ]", "step"), ("{ }", "minute"), ("esc", "now")):
        parts += [(f"  {keys}", "key"), (f" {does}", "dim")]
    return whole_fields(parts, width)


def status_line(watched: Watched, width: int, *, paused: bool, readonly: bool) -> Line:
    """Return the line that says whose cluster this is, how it is, and its alarms.

    Where it is narrow, the program's name and then the counts give way, and not the alarms; a name
    has a third of the width at most.
    """
    snapshot = watched.snapshot
    if not snapshot.name:
        return (("gputui", "title"), ("  waiting for the cluster", "dim"))
    name = fmt.safe(snapshot.name)
    name = fitted(name, min(width // 3, cell_len(name)))
    parts: list[Part] = [("gputui ", "dim"), (name, "title")]
    parts += [(" SIMULATED", "warn")] if snapshot.simulated else []
    parts += [(" PAUSED", "warn")] if paused else []
    parts += [(" read-only", "dim")] if readonly else []
    parts.append(_state(watched, snapshot))
    ready = sum(host.state is HostState.READY for host in snapshot.hosts)
    wanted = snapshot.wanted_workers
    counts = [_count("hosts", ready, len(snapshot.hosts))]
    if not watched.watching:
        wanted = len(snapshot.workers) if wanted is None else wanted
        counts.append(_count("workers", snapshot.workers_up, wanted))
    then = [counts, _calls(watched)]
    if _width([*parts, *counts, *then[1]]) > width:
        parts, then = parts[1:], then[::-1]
    parts += [*then[0], *then[1]]
    if snapshot.scheduler.state is not SchedulerState.NONE:
        parts.append((f"  tasks {fmt.count(snapshot.scheduler.tasks)}", ""))
    if snapshot.scheduler.queued:
        parts.append((f"  {fmt.count(snapshot.scheduler.queued)} queued", "dim"))
    people = sum(session.frontend != "run" for session in snapshot.sessions)
    return [*parts, (f"  attached {people}", "dim")] if people > 1 else parts


def _count(what: str, there: int, wanted: int) -> Part:
    return f"  {what} {there}/{wanted}", "" if there >= wanted else "warn"


TOTALS_FROM = 20
"""Lines of the terminal from which the fleet's totals have a line of their own."""
SPARKS = (6, 24)
"""Cells of a short graph: the fewest, the most."""
IN_PERCENT = (Metric.UTILIZATION, Metric.MEMORY, Metric.POWER)


def totals_line(watched: Watched, width: int) -> Line:
    """Return the whole fleet in a line: utilisation, memory, power, tasks, each with a graph.

    Without a GPU these are its hosts' CPUs and memory, and their network in place of power.
    """
    now, on_gpus = watched.total, watched.on_gpus
    tasks = f"{fmt.number(now.tasks_per_s, 1 if (now.tasks_per_s or 0) < 10 else 0)}/s"
    fields = [] if watched.watching else [("TASKS", tasks, Metric.TASKS)]
    if now.memory_total_bytes is not None:
        busy = f"{fmt.number(now.utilization_percent)}%"
        memory = fmt.memory(now.memory_used_bytes, now.memory_total_bytes)
        power = fmt.MISSING if now.power_w is None else f"{now.power_w / 1000:.1f}"
        power += f"/{now.power_limit_w / 1000:.1f} kW" if now.power_limit_w else " kW"
        fields[:0] = [
            ("UTIL" if on_gpus else "CPU", busy, Metric.UTILIZATION),
            ("MEM", memory, Metric.MEMORY),
            ("PWR", power, Metric.POWER)
            if on_gpus
            else ("NET", f"{fmt.size(now.network_bytes_per_s)}/s", Metric.NETWORK),
        ]
    words = sum(len(name) + len(text) + 3 for name, text, _ in fields)
    cells = min(SPARKS[1], (width - words) // max(1, len(fields)) - 1)
    parts: list[Part] = []
    for name, text, metric in fields:
        parts += [(f"{'  ' if parts else ''}{name} ", "dim"), (text, "title")]
        if cells >= SPARKS[0]:
            steps = watched.history.steps(FLEET, metric, Span.MINUTES_2, 2 * cells)
            past = list(dropwhile(lambda value: value is None, steps))  # it begins at the left
            past += [None] * (2 * cells - len(past))
            top = 100.0 if metric in IN_PERCENT else max(filter(None, past), default=1.0)
            parts += [(" ", ""), spark(past, cells, top)]
    return parts


def _calls(watched: Watched) -> list[Part]:
    """Return how many alarms and open questions there are."""
    alarms, questions = list(watched.alarms), len(watched.questions)
    parts: list[Part] = []
    if alarms:
        role = "bad" if alarms[0].serious else "warn"
        parts += [("  !", "key"), (fmt.many(len(alarms), "alarm"), role)]
    if questions:
        parts += [("  A", "key"), (fmt.many(questions, "question"), "accent")]
    return parts


def _state(watched: Watched, snapshot: Snapshot) -> Part:
    """Return how the cluster is; green only with workers and while nothing is broken."""
    scheduler, running = snapshot.scheduler, snapshot.state is ClusterState.RUNNING
    if snapshot.state is ClusterState.FAILED:
        return "  failed", "bad"
    if scheduler.state is SchedulerState.LOST:
        return "  scheduler lost", "bad"
    if scheduler.state is SchedulerState.BUSY:
        return f"  scheduler busy {scheduler.busy_s:.0f}s", "warn"
    if running and without_workers(snapshot):
        return "  ✖ no workers", "bad"
    if watched.watching:
        runs = sum(not run.state.ended for run in snapshot.runs)
        return f"  {fmt.many(runs, 'run') if runs else 'watching'}, no workers", ""
    if not running:
        return f"  ◔ {snapshot.state.value}", "accent"
    broken = any(alarm.serious for alarm in watched.alarms)
    return f"  ● {snapshot.state.value}", "" if broken or not snapshot.any_up else "good"


def trouble_lines(watched: Watched, width: int, most: int) -> list[Line]:
    """Return a line for each kind of alarm, the worst first, with what to press."""
    kinds: dict[AlarmKind, list[Alarm]] = {}
    for alarm in watched.alarms:
        kinds.setdefault(alarm.kind, []).append(alarm)
    lines: list[Line] = []
    for kind, alarms in list(kinds.items())[:most]:
        first, name = alarms[0], fmt.safe(alarms[0].subject)
        sign, role = ("✖", "bad") if first.serious else ("▲", "warn")
        more = f" and {len(alarms) - 1} more" if len(alarms) > 1 else ""
        head = f" {sign} {fitted(name, min(24, cell_len(name)))}{more}  "
        end: list[Part] = []
        if kind is AlarmKind.FAILED:
            end = [(" r", "key"), (" retries", "dim")]
        if len(lines) + 1 == min(most, len(kinds)):
            rest = f"  +{len(kinds) - most} more" if len(kinds) > most else ""
            end += [(rest, "warn"), ("  !", "key"), (" lists all", "dim")]
        room = max(0, width - cell_len(head) - _width(end))
        detail = _detail(watched, first)
        text = fmt.safe(f"{kind.value}{detail}")
        if kind is AlarmKind.FAILED and cell_len(text) > room:
            text = fmt.safe(detail.removeprefix(": "))
        lines.append([(head, role), (fitted(text, room), role), *end])
    return lines


def _detail(watched: Watched, alarm: Alarm) -> str:
    """Return the details of an alarm."""
    lasted = fmt.lasted(alarm.since, alarm.held_at, watched.snapshot.taken_at)
    slot = next((slot for slot in watched.slots if slot.key == alarm.subject), None)
    reasons = [host.cause for host in watched.snapshot.hosts if host.name == alarm.subject]
    reasons += [worker.reason for worker in slot.workers] if slot else []
    if reason := next(filter(None, reasons), ""):
        return f": {reason.partition(chr(10))[0]}"
    if slot and slot.device and alarm.kind is AlarmKind.THROTTLED:
        return f" to {fmt.number(slot.device.sm_clock_mhz)} MHz {lasted}"
    return f" {lasted}"


LAST = 4
"""Commands that the line of keys always ends with."""


def keys_lines(
    commands: Iterable[Command],
    views: Iterable[tuple[str, str]],
    current: str,
    width: int,
    dim: Collection[str] = (),
) -> list[Line]:
    """Return the keys: the views, the present one marked, then commands that fit whole.

    Where they do not fit one line they are two: the views, and the commands, the last four of
    which are shown in any case. Commands that cannot be called now may be `dim`.
    """
    shown = [each for each in commands if each.hint and each.key]
    hints = [_hint(each, each.name in dim) for each in shown]
    hints, always = hints[:-LAST], [part for hint in hints[-LAST:] for part in hint]
    parts: list[Part] = []
    for key, name in views:
        parts += [(key, "key"), (name, "found" if name == current else ""), (" ", "")]
    if sum(map(_width, (parts, *hints, always))) <= width:
        return [[*parts, *(part for hint in hints for part in hint), *always]]
    line: list[Part] = []
    for hint in hints:
        if _width([*line, *hint, *always]) > width:
            break
        line += hint
    return [parts, [*line, *always]]


def _hint(command: Command, dim: bool) -> Line:
    return [(f" {key_name(command.key)}", "off" if dim else "key"), (f" {command.hint}", "dim")]


def _width(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)
