"""Start a head, and wait for its cluster to come up: for `--run`, the screen, `up` and Python.

Nothing here imports distributed: a frontend does that while its head starts.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from gputui.client.head_connection import HeadConnection
from gputui.client.head_process import END_S, HeadProcess
from gputui.errors import ClusterError, HeadError
from gputui.model.plain_text import many
from gputui.model.snapshot import HostState, HostStatus
from gputui.process.procfs import environment
from gputui.protocol.connection_file import ConnectionFile, find_cluster
from gputui.protocol.frontend import AwaitWorkers, Settled, SnapshotTaken, ToFrontend
from gputui.protocol.starter import ConfigureHead

WAITING_EVERY_S = 5.0
"""How often a waiting message is printed."""
NAMED = 3
"""How many hosts are named that are waited for."""
LAST_LINES = 5
"""Last log lines shown of a failed host."""


def spawn_head(config: ConfigureHead, begun: HeadProcess | None = None) -> HeadProcess:
    """Start a head, unless one that was `begun` will do, and have it reach its hosts at once.

    Raises UsageError on a Mac.
    """
    head = begun if begun and begun.up_to_date else HeadProcess()
    head.configure(config)
    return head


async def started(
    config: ConfigureHead, begun: HeadProcess | None = None, *, frontend: str
) -> HeadConnection:
    """Start a head as `spawn_head` does and attach to it; it ends with the connection."""
    return await connected(spawn_head(config, begun), frontend=frontend)


async def connected(head: HeadProcess, *, frontend: str) -> HeadConnection:
    """Attach to a head that was started here; it ends with the connection, unless it is kept."""

    async def end() -> None:
        if not head.kept:
            await asyncio.shield(asyncio.to_thread(head.end))

    try:
        socket = await asyncio.to_thread(head.opened)
        connection = await HeadConnection.open(socket, frontend=frontend, snapshots=True)
    except BaseException:
        await end()
        raise
    connection.at_close = end
    return connection


async def stop_by_signal(cluster: ConnectionFile) -> None:
    """Stop a cluster whose head speaks another version or does not answer; wait until it is gone.

    Every version's head ends in order by SIGTERM. Raises HeadError where it does not.
    """
    if f"GPUTUI_CLUSTER={cluster.cluster_id}".encode() in environment(cluster.pid):
        with contextlib.suppress(ProcessLookupError):  # it ends just now
            os.kill(cluster.pid, signal.SIGTERM)
    end = time.monotonic() + END_S
    while find_cluster(cluster.name) == cluster:
        if time.monotonic() > end:
            raise HeadError(
                f"{cluster.name}: its head, process {cluster.pid} of gputui {cluster.version}, did "
                f"not stop within {END_S:g} s; see gputui why {cluster.name}, or end the process"
            )
        await asyncio.sleep(0.05)


async def workers_up(
    connection: HeadConnection, workers: int | None, tell: Callable[[str], None], also: str = ""
) -> Settled:
    """Wait for workers; report each failure as soon as it is known, and what is still pending.

    So are the warnings of hosts, such as of who else uses their GPUs, or of a disk that is full.
    `connection` takes snapshots. Failures that were not reported yet are reported at the end, and
    fewer workers than were asked for where none of them failed; `also` is one more hint on them.
    """
    reported: set[str] = set()
    warned: set[str] = set()
    due, lacked = time.monotonic() + WAITING_EVERY_S, ""

    def heard(message: ToFrontend) -> None:
        nonlocal due, lacked
        if not isinstance(message, SnapshotTaken):
            return
        hosts, lacking = message.snapshot.hosts, message.snapshot.lacking
        for host in hosts:
            if host.state is HostState.FAILED and host.name not in reported:
                reported.add(host.name)
                for line in _failure(host):
                    tell(line)
            for each in host.warnings if host.state is HostState.READY else ():
                if (line := f"{host.name}: {each}") not in warned:
                    warned.add(line)
                    tell(line)
        coming = [
            f"{each.name} ({each.reason or each.state})" for each in hosts if not each.state.final
        ]
        if lacking and time.monotonic() > due:
            if (first := lacking.splitlines()[0]) != lacked:  # what follows tells moments
                lacked, due = first, time.monotonic() + WAITING_EVERY_S
                tell(f"waiting for GPUs: {lacking}")
        elif coming and time.monotonic() > due:
            due = time.monotonic() + WAITING_EVERY_S
            more = f" and {len(coming) - NAMED} more" if len(coming) > NAMED else ""
            tell(f"{len(hosts) - len(coming)} of {len(hosts)} hosts are done; waiting for "
                 f"{', '.join(coming[:NAMED])}{more}")  # fmt: skip

    connection.heard = heard
    try:
        settled: Settled = await connection.request(AwaitWorkers(0, workers))
    finally:
        connection.heard = None
    left = tuple(host for host in settled.failed_hosts if host.name not in reported)
    for problem in failures(replace(settled, failed_hosts=left)):
        tell(problem)
    up = len(settled.workers)
    if 0 < up < (workers or 0) and not (settled.failed_hosts or settled.failed_workers):
        hint = f"workers= and workers-per-gpu= in HOSTS make room for more{also}"
        tell(f"{up} of {workers} workers: the hosts have no room for more; {hint}")
    return settled


def check_enough(settled: Settled, min_workers: int, *, reported: bool = False) -> None:
    """Raise ClusterError when fewer workers are up, with every reason.

    Reasons that were `reported` already are its notes, not its message.
    """
    if len(settled.workers) >= min_workers:
        return
    found = f"{len(settled.workers)} of at least {many(min_workers, 'worker')} came up"
    reasons = failures(settled)
    error = ClusterError("\n".join([found, *([] if reported else reasons)]))
    for line in reasons if reported else ():
        error.add_note(line)
    raise error


def failures(settled: Settled) -> list[str]:
    """List the failed hosts and workers: the reason, the hint, the last lines there."""
    lines = settled.lacking.splitlines()
    for host in settled.failed_hosts:
        lines += _failure(host)
    return lines + [f"{worker.name}: {worker.reason}" for worker in settled.failed_workers]


def _failure(host: HostStatus) -> list[str]:
    """Return a failed host's reason, its hint, and its last lines."""
    lines = [f"{host.name}: {host.reason} (while {host.failed_stage})"]
    lines += [f"  {host.hint}"] if host.hint else []
    said = (line for line in host.stderr_tail if line.strip() and line not in host.reason)
    return lines + [f"  | {line}" for line in [*said][-LAST_LINES:]]
