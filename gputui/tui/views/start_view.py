"""The start view: how far each host is, what failed and why, and trying it again."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gputui.model.snapshot import AWAY, HostState, HostStatus
from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.lines import Line, Part, fitted, wrapped
from gputui.tui.rendering.metrics import HOST_MARKS
from gputui.tui.views.listing import Listing
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Table

STAGES = tuple(HostState)[:6]
LAST_LINES = 4
"""Last log lines shown of a host."""


@dataclass(frozen=True, slots=True)
class StartRow:
    """A host on its way, at one moment."""

    host: HostStatus
    now: float

    @property
    def why(self) -> str:
        """Why it is not up, in a line; the rest is said below the hosts."""
        host = self.host
        return fmt.safe(host.reason or next(iter(host.warnings), ""))


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
    shape, _, role = HOST_MARKS[host.state]
    if host.state not in (*STAGES[:-1], HostState.FAILED):
        return "●" * len(STAGES), role
    return "●" * done + shape + "·" * (len(STAGES) - done - 1), role


def _word(row: StartRow) -> str:
    return HOST_MARKS[row.host.state][1]


START_COLUMNS: tuple[Column[StartRow], ...] = (
    Column(
        "host", "HOST", 14, 0, lambda r, width: [(fitted(fmt.safe(r.host.name), width), "title")],
        lambda r: r.host.name, right=False, falling=False, most=24,
    ),
    Column("stages", "STAGES", 6, 0, lambda r, width: [stage_part(r.host)], right=False),
    text_column(
        "STATE", 14, 0, _word,
        lambda r: HOST_MARKS[r.host.state][2], lambda r: urgency(r.host),
    ),
    text_column(
        "SINCE", 5, 1, lambda r: fmt.age(r.now - r.host.state_since), lambda r: "dim",
        lambda r: r.now - r.host.state_since, right=True,
    ),
    text_column(
        "WHY", 20, 0, lambda r: r.why, lambda r: "warn" if r.host.reason else "dim", rest=20
    ),
)  # fmt: skip


def urgency(host: HostStatus) -> int:
    """Return 0 for a host that failed, 1 for one on its way, 2 for one that is up."""
    if host.state is HostState.READY:
        return 2
    return 1 if host.state in STAGES else 0


def evidence(host: HostStatus, width: int) -> list[Line]:
    """Describe a host's trouble in full: the reason, the hint, its last lines."""
    shape, word, role = HOST_MARKS[host.state]
    stage = f" while {host.failed_stage}" if host.failed_stage else ""
    lines: list[Line] = [
        [
            (f"{shape} {fmt.safe(host.name)}", role or "title"),
            (f"  {word}{stage}", role),
            (f"  {fmt.safe(host.address)}", "dim"),
        ]
    ]
    lines += wrapped(host.reason, width, "", "  ")
    if not host.failed_stage:
        lines += [[(f"  {fmt.safe(text)}", "dim")] for text in _found(host)]
    lines += wrapped(f"try: {host.hint}", width, "accent", "  ") if host.hint else []
    for text in (*host.warnings, *host.stderr_tail)[-LAST_LINES:]:
        lines += wrapped(text, width, "dim", "  ")
    return lines


def _found(host: HostStatus) -> list[str]:
    """Describe the facts of a host so far."""
    kinds = Counter((device.name, device.memory_total_bytes) for device in host.devices)
    gpus = [f"{count} × {name}, {fmt.size(total)} each" for (name, total), count in kinds.items()]
    read = host.reading
    if read.memory_total_bytes is None:
        return gpus
    memory = fmt.memory(read.memory_used_bytes, read.memory_total_bytes)
    load, cpu = fmt.number(read.load_1m, 1), fmt.number(read.cpu_percent)
    return [*gpus, f"host memory {memory}  CPU {cpu}%  load {load}"]


class StartView(Listing[StartRow]):
    """The hosts on their way into the cluster."""

    NAME = "hosts"
    NOTHING = "no hosts yet"
    COLUMNS = START_COLUMNS
    FILTER = Fields(
        everything=lambda r: " ".join(
            (r.host.name, _word(r), r.host.reason, r.host.hint, *r.host.stderr_tail)
        ),
        words={"state": _word, "failed": lambda r: r.host.failed_stage},
        choices={"state": tuple(word for _, word, _ in HOST_MARKS.values())},
    )

    def __init__(self) -> None:
        super().__init__()
        self._moved = False
        """Whether a person moved the cursor away from the most urgent host."""

    def values(self, watched: Watched) -> Iterable[StartRow]:
        """Return the hosts: those that failed first, then those on their way."""
        if (snapshot := watched.snapshot) is None:
            return ()
        hosts = sorted(snapshot.hosts, key=urgency)
        return [StartRow(host, snapshot.taken_at) for host in hosts]

    def key(self, value: StartRow) -> str:
        """Return a host's name."""
        return value.host.name

    def show(self, watched: Watched) -> None:
        """Draw the hosts, the cursor on the most urgent until somebody moves it."""
        super().show(watched)
        if not self._moved and self._values:
            self.table.select(next(iter(self._values)))

    def about(self, value: StartRow, width: int, height: int) -> list[Line]:
        """Describe the host under the cursor, then all others that failed."""
        chosen = value.host
        others = (row.host for row in self._values.values() if row.host is not chosen)
        shown = [chosen, *(host for host in others if not urgency(host))]
        return [line for host in shown for line in (*evidence(host, width), ())][:-1]

    def moved(self, key: str) -> None:
        """Show the details of the host under the cursor, which stays there."""
        super().moved(key)
        self._moved = key != next(iter(self._values), None)

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the host's GPUs."""
        event.stop()
        self.screen_app.go_to("fleet", event.key)

    def crumbs(self) -> Line:
        """Describe how many are ready, connecting and failed."""
        hosts = [row.host for row in self._values.values()]
        ready = sum(host.state is HostState.READY for host in hosts)
        parts: list[Part] = [(f"{ready} of {len(hosts)} hosts are up", "good" if ready else "")]
        for word, role, states in (
            ("failed", "bad", (HostState.FAILED,)),
            ("silent", "warn", AWAY),
        ):
            if number := sum(host.state in states for host in hosts):
                parts.append((f"  {number} {word}", role))
        return [*parts, *self.narrowed()]

    async def retry(self) -> None:
        """Try the host under the cursor again."""
        from gputui.protocol.frontend import RetryHosts

        for name in self.targets():
            await self.screen_app.head.request(RetryHosts(0, (name,)))
            self.screen_app.say(f"retrying {name}")

    def cannot_retry(self) -> str:
        """Return why the host under the cursor cannot be tried again."""
        row = self.current
        failed = row is not None and urgency(row.host) == 0
        return "" if failed else "this host has not failed"

    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command(
            "retry-host", "Retry the selected host", retry, "r", hint="retry",
            changes=True, unavailable=cannot_retry,
        ),
    )  # fmt: skip
