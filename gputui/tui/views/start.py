"""The launch board: how far each host is, what failed and why, and trying it again."""

from typing import Any

from textual.app import ComposeResult

from gputui.protocol.frontend import RetryHosts
from gputui.snapshot import HostState, HostStatus
from gputui.tui.commands.registry import Command
from gputui.tui.filter import Fields, FilterError, Matches, parse
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.marks import COMING_UP, host_mark
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Line, Pane, Part, fitted
from gputui.tui.widgets.table import Table

STAGES = tuple(HostState)[:6]
LAUNCH_FILTER: Fields[HostStatus] = Fields(
    everything=lambda host: " ".join(
        (host.name, host.state.value, host.reason, host.hint, *host.stderr_tail)
    ),
    words={
        "state": lambda host: host.state.value,
        "failed": lambda host: host.failed_stage,
    },
    choices={"state": tuple(HostState)},
)
NAME_MOST = 24
EVIDENCE_LINES = 6


def stage_part(host: HostStatus) -> Part:
    """Return how far a host came: a dot for each stage.

    >>> stage_part(HostStatus("h", HostState.PROBING, 0.0))
    ('●●●◔··', 'accent')
    >>> stage_part(HostStatus("h", HostState.FAILED, 0.0, failed_stage="connecting"))
    ('●✖····', 'bad')
    """
    failed = host.state is HostState.FAILED
    reached = host.failed_stage if failed else host.state.value
    names = [stage.value for stage in STAGES]
    done = names.index(reached) if reached in names else 0
    if host.state not in (*STAGES[:-1], HostState.FAILED):
        return ("●" * len(STAGES), host_mark(host).role)
    here = "✖" if failed else COMING_UP.shape
    dots = "●" * done + here + "·" * (len(STAGES) - done - 1)
    return (dots, "bad" if failed else COMING_UP.role)


def launch_row(host: HostStatus, name_width: int, now: float) -> Line:
    """Return a host's line: name, stages, state, how long in it, and why."""
    mark = host_mark(host)
    age = fmt.age(now - host.state_since)
    last_log_lines = host.stderr_tail[-1] if host.stderr_tail else ""
    why = " · ".join(filter(None, (host.reason, host.hint, last_log_lines, *host.warnings)))
    return (
        (" " + fitted(fmt.safe(host.name), name_width) + " ", "title"),
        stage_part(host),
        (f" {host.state.value:<14} {age:>4}  ", mark.role),
        (fmt.safe(why), "warn" if host.reason else "dim"),
    )


def evidence(host: HostStatus) -> list[Line]:
    """Return what is known of a host's trouble, in lines: why, the hint, what was printed."""
    lines: list[Line] = [((fmt.safe(host.name), "title"), (f"  {fmt.safe(host.address)}", "dim"))]
    if host.reason:
        stage = f" while {host.failed_stage}" if host.failed_stage else ""
        lines.append(((f"{host.state.value}{stage}: ", "bad"), (fmt.safe(host.reason), "")))
    if host.hint:
        lines.append((("try: ", "accent"), (fmt.safe(host.hint), "")))
    room = EVIDENCE_LINES - len(lines)
    lines += [((fmt.safe(text), "dim"),) for text in (*host.warnings, *host.stderr_tail)[-room:]]
    return lines


class StartView(View):
    """The hosts on their way into the cluster."""

    NAME = "launch"
    FILTER = LAUNCH_FILTER
    DEFAULT_CSS = f"StartView #evidence {{ height: {EVIDENCE_LINES}; dock: bottom; }}"

    def __init__(self) -> None:
        super().__init__()
        self.table, self._evidence = Table(), Pane(id="evidence")
        self._evidence.can_focus = False
        self._hosts: dict[str, HostStatus] = {}
        self._shown: list[str] = []
        self._filter_text = ""
        self._matches: Matches[HostStatus] | None = None
        self._moved = False
        """Whether a person moved the cursor away from what is most urgent."""

    def compose(self) -> ComposeResult:
        """Lay out the hosts, and below them what is known of the one under the cursor."""
        yield self.table
        yield self._evidence

    def show(self, watched: Watched) -> None:
        """Draw the hosts: those that need a person first, then those on their way."""
        snapshot = watched.snapshot
        if snapshot is None:
            return
        hosts = sorted(snapshot.hosts, key=_urgency)
        self._hosts = {host.name: host for host in hosts}
        matches = self._matches
        self._shown = [host.name for host in hosts if matches is None or matches(host)]
        width = min(NAME_MOST, max(map(len, self._hosts), default=4))
        heading = f" {fitted('HOST', width)} STAGES STATE          SINCE  WHY"
        self.table.show(
            ((heading, "title"),),
            self._shown,
            lambda name: launch_row(self._hosts[name], width, snapshot.taken_at),
        )
        if not self._moved and self._shown:
            self.table.select(self._shown[0])
        self._show_evidence()

    def _show_evidence(self) -> None:
        host = self.current
        self._evidence.put(evidence(host) if host else ())

    def on_table_moved(self, event: Table.Moved) -> None:
        """Show what is known of the host under the cursor; it stays there from now on."""
        event.stop()
        self._moved = event.key != next(iter(self._shown), None)
        self._show_evidence()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the host's GPUs."""
        event.stop()
        self.screen_app.go_to("fleet", event.key)

    def crumbs(self) -> Line:
        """Say how many are up, on their way, failed."""
        states = [host.state for host in self._hosts.values()]
        ready, failed = states.count(HostState.READY), states.count(HostState.FAILED)
        parts: list[Part] = [(f"{ready} of {len(states)} hosts are up", "good" if ready else "")]
        if failed:
            parts.append((f"  {failed} failed", "bad"))
        if self._filter_text:
            parts.append((f"  /{self._filter_text}", "accent"))
        return parts

    def filter(self, text: str) -> str:
        """Show only hosts that match; return what is wrong with the filter, or ""."""
        try:
            self._matches = parse(text, LAUNCH_FILTER) if text.strip() else None
        except FilterError as error:
            return str(error)
        self._filter_text = text.strip()
        self.screen_app.redraw()
        return ""

    @property
    def filter_text(self) -> str:
        """The filter as it was typed."""
        return self._filter_text

    def back(self) -> bool:
        """Let go of the filter."""
        if not self._filter_text:
            return False
        self.filter("")
        return True

    def targets(self) -> tuple[str, ...]:
        """Return the host under the cursor."""
        return (self.table.cursor,) if self.table.cursor else ()

    def go_to(self, key: str) -> None:
        """Put the cursor on a host."""
        self.table.select(key)

    def focus_body(self) -> None:
        """Put the focus on the hosts."""
        self.take_focus(self.table)

    @property
    def current(self) -> HostStatus | None:
        """The host under the cursor."""
        return self._hosts.get(self.table.cursor or "")

    async def retry(self) -> None:
        """Try the host under the cursor again."""
        for name in self.targets():
            await self.screen_app.head.request(RetryHosts(0, (name,)))
            self.screen_app.say(f"trying {name} again")


def _urgency(host: HostStatus) -> int:
    """Return 0 for a host that failed, 1 for one on its way, 2 for one that is up."""
    if host.state is HostState.READY:
        return 2
    return 1 if host.state in STAGES else 0


def _not_failed(view: Any) -> str:
    host = view.current
    return "" if host is not None and _urgency(host) == 0 else "this host has not failed"


StartView.COMMANDS = (
    Command(
        "retry-host",
        "Try the host under the cursor again",
        lambda view, _argument: view.retry(),
        ("r",),
        "launch",
        hint="retry",
        changes=True,
        unavailable=_not_failed,
    ),
)
