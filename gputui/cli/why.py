"""`why`: ask a cluster's head what its agents find, print the verdicts, and pack them for a report.

Everything of the head's is asked at once, and nothing is waited for longer than a few seconds: a
head that does not answer is a verdict, too.
"""

import asyncio
import json
import sys
import time
from typing import Any

import msgspec

from gputui.cli.clusters import chosen_cluster, remote_head
from gputui.client.head_connection import HeadConnection
from gputui.errors import ExitCode
from gputui.model.examination import ExaminedHost, ExaminedScheduler
from gputui.model.plain_text import safe
from gputui.model.snapshot import Event, Snapshot
from gputui.model.verdicts import ANSWER_S, Evidence, Verdict, as_lines, verdicts
from gputui.process.procfs import process_stat
from gputui.protocol.connection_file import ConnectionFile
from gputui.protocol.frontend import (
    EventHappened,
    Examine,
    Examined,
    SnapshotTaken,
    SubscribeLogs,
    ToFrontend,
)
from gputui.protocol.shared import LogLines

REMOTE_S = 30.0
"""How long one of another machine may take: a person may be asked for a password."""

LOGS_S = 0.5
"""How long a bundle waits for the last lines that workers printed."""


class Heard:
    """What a head says while it is asked."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.events: list[Event] = []
        self.logs: list[LogLines] = []
        self.env_values: tuple[str, ...] = ()
        self.first = asyncio.Event()
        """Set with the first snapshot."""

    def take(self, message: ToFrontend) -> None:
        """Keep a message."""
        match message:
            case SnapshotTaken(snapshot):
                self.snapshot = snapshot
                self.first.set()
            case EventHappened(event):
                self.events.append(event)
            case LogLines():
                self.logs.append(message)


async def why(name: str | None, as_json: bool, bundle: str | None) -> int:
    """Print why a cluster is stuck, the likeliest cause first."""
    heard, cluster = Heard(), None
    if (remote := remote_head(name)) is None:
        cluster = chosen_cluster(name)
    try:
        async with asyncio.timeout(ANSWER_S if cluster else REMOTE_S):
            if remote is not None:
                opening = remote.open(frontend="command", snapshots=True)
            else:
                assert cluster
                opening = HeadConnection.open(cluster.socket, frontend="command", snapshots=True)
            evidence = await _examined(await opening, heard, logs=bundle is not None)
        found = verdicts(evidence)
    except TimeoutError:
        evidence = None
        found = (_no_answer(cluster),)
    if bundle is not None:
        from gputui.cli.bundle import pack

        said = as_object(found, evidence)
        pack(bundle, said, heard.snapshot, heard.events, heard.logs, heard.env_values)
        print(f"gputui: wrote {safe(bundle)}: read it before you send it", file=sys.stderr)
    if as_json:
        print(json.dumps(as_object(found, evidence)))
    else:
        print("\n".join(map(safe, as_lines(found))))
    return int(ExitCode.DONE)


async def _examined(connection: HeadConnection, heard: Heard, *, logs: bool) -> Evidence:
    """Have the head's agents examine its workers."""
    connection.heard = heard.take
    async with connection:
        connection.send(SubscribeLogs(logs))
        found = await connection.request(Examine(0))
        assert isinstance(found, Examined)
        heard.env_values = found.env_values
        await heard.first.wait()
        if logs:
            await asyncio.sleep(LOGS_S)
        assert heard.snapshot
        return Evidence(heard.snapshot, found.hosts, found.scheduler, tuple(heard.events))


def _no_answer(cluster: ConnectionFile | None) -> Verdict:
    """Say how a head is that does not answer."""
    stat = process_stat(cluster.pid) if cluster else None
    if cluster and stat and stat.stopped:
        text = f"the head's process is stopped by a signal: kill -CONT {cluster.pid}"
        return Verdict("head-stopped", text, ("its agents end with their lease",))
    return Verdict(
        "head-silent", "the head does not answer", (f"state {stat.state}",) if stat else ()
    )


def as_object(found: tuple[Verdict, ...], evidence: Evidence | None) -> dict[str, Any]:
    """Return the object of `why --json`."""
    hosts: tuple[ExaminedHost, ...] = evidence.hosts if evidence else ()
    scheduler = evidence.scheduler if evidence else ExaminedScheduler()
    said = {"at": time.time(), "verdicts": found, "hosts": hosts, "scheduler": scheduler}
    shown: dict[str, Any] = msgspec.to_builtins(said)
    return shown
