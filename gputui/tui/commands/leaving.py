"""What a person who leaves a cluster, or stops it, is to know. Pure: a snapshot → words."""

import time
from collections.abc import Iterator

from gputui.snapshot import RunState, RunStatus, Snapshot
from gputui.tui.rendering import format as fmt


def under_way(snapshot: Snapshot) -> list[RunStatus]:
    """Return the runs that have not ended."""
    return [run for run in snapshot.runs if not run.state.ended]


def concerned(snapshot: Snapshot, pid: int) -> Iterator[str]:
    """Yield a line for each run under way and each session but that of the process `pid`."""
    for run in under_way(snapshot):
        share = f" {run.done / run.total:.0%}" if run.total else ""
        stage = run.stage or (run.state.value if run.state is RunState.STARTING else "")
        since = fmt.elapsed(snapshot.taken_at - run.started_at)
        yield f"run {run.preset}{share}, {' '.join(filter(None, (stage, since)))}"
    for session in snapshot.sessions:
        if session.pid != pid:
            since = fmt.age(snapshot.taken_at - session.attached_at)
            yield f"attached: {session}, for {since}"


def left_running(name: str) -> str:
    """Return how to come back to a cluster that goes on."""
    return f"{name} goes on; gputui attach {name} comes back, gputui down {name} stops it."


def ended(name: str, reason: str, at: float, *, by_us: bool, left: str = "") -> str:
    """Return what became of a cluster that has ended; `left` is what could not be told to."""
    if by_us:
        return f"{name} is stopped; {left or 'nothing is left of it.'}"
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    return f"{name} ended at {clock}: {reason}{f'; {left}' if left else ''}"
