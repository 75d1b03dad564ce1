"""`why`: ask a cluster's head what its agents find, print the verdicts, and pack them for a report.

Everything of the head's is asked at once, and nothing is waited for longer than a few seconds: a
head that does not answer is a verdict, too. In a report everything goes through `without_secrets`
as text: keys, tokens, values of environment variables and folders below somebody's home are
replaced before anything is written.
"""

import asyncio
import io
import json
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec

from gputui.cli.clusters import connecting, remote_head
from gputui.client.head_connection import HeadConnection
from gputui.model.examination import ExaminedScheduler
from gputui.model.plain_text import safe
from gputui.model.verdicts import ANSWER_S, Evidence, Verdict, as_lines, verdicts
from gputui.process.procfs import process_stat
from gputui.protocol.connection_file import ConnectionFile, chosen, running_clusters
from gputui.protocol.frontend import (
    EventHappened,
    Examine,
    Examined,
    SnapshotTaken,
    ToFrontend,
)
from gputui.protocol.shared import FollowLogs, LogLines
from gputui.runs.output import output_file, write_over
from gputui.version import __version__

REMOTE_S = 30.0
"""How long a head of another machine may take, once it is reached."""

LOGS_S = 0.5
"""How long a bundle waits for the last lines that workers printed."""

SECRETS = (
    (r"-----BEGIN [^-]+-----.*?-----END [^-]+-----", "[key]"),
    (r"-----BEGIN [^-]+-----\S*", "[key]"),
    (r"(\w+://)[^/\s:@]*:[^/\s@]+@", r"\1[password]@"),
    (r"(?i)\b(authorization|bearer|basic)(\s*:\s*|\s+)(bearer\s+|basic\s+)?\S+", r"\1 [token]"),
    (
        r"(?i)([\w-]*(?:token|secret|passw|passphrase|credential|api_?key|access_?key)[\w-]*"
        r"[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s\"',;)}]+)",
        r"\1[secret]",
    ),
    (r"\b(?:gh[pousr]_|hf_|sk-|xox[a-z]-|AKIA|glpat-|eyJ)[\w.-]{12,}", "[token]"),
    (r"\b([A-Z][A-Z0-9_]{2,})=(\"[^\"]*\"|'[^']*'|\S+)", r"\1=[value]"),
    (r"([\"'])([A-Z][A-Z0-9_]{2,})\1(\s*[:,]\s*)([\"']).*?\4", r"\1\2\1\3'[value]'"),
    (r"(?:/home|/Users|/users)/[^/\s\"':,]+|/root\b", "~"),
    (r"\b[A-Za-z0-9+/_-]{40,}={0,2}", "[long word]"),
)
"""A pattern → what stands in its place."""
LEAST_CHARACTERS = 6
"""A value of an environment, or of a run's parameter, that is shorter may be any word."""


async def why(name: str | None, as_json: bool, bundle: str | None) -> None:
    """Print why a cluster is stuck, the likeliest cause first."""
    file = output_file("--bundle", bundle) if bundle else None
    opening, heard = connecting(name), list[ToFrontend]()
    cluster = None if remote_head(name) else chosen(running_clusters(), name)
    examined: Examined | None = None
    try:
        async with asyncio.timeout(ANSWER_S if cluster else None) as bound:
            connection = await opening(frontend="command", snapshots=True)
            if not cluster:  # the way there has bounds of its own, and may ask for a password
                bound.reschedule(asyncio.get_running_loop().time() + REMOTE_S)
            examined = await _examined(connection, heard, logs=file is not None)
    except TimeoutError:
        found: tuple[Verdict, ...] = (_no_answer(cluster),)
    else:
        snapshot = [each.snapshot for each in heard if isinstance(each, SnapshotTaken)][-1]
        events = tuple(each.event for each in heard if isinstance(each, EventHappened))
        found = verdicts(Evidence(snapshot, examined.hosts, examined.scheduler, events))
    said: dict[str, Any] = msgspec.to_builtins(
        {
            "at": time.time(),
            "verdicts": found,
            "hosts": examined.hosts if examined else (),
            "scheduler": examined.scheduler if examined else ExaminedScheduler(),
        }
    )
    if file is not None:
        pack(file, said, heard, examined.env_values if examined else ())
        print(f"gputui: wrote {safe(str(file))}: read it before you send it", file=sys.stderr)
    print(json.dumps(said) if as_json else "\n".join(map(safe, as_lines(found))))


async def _examined(connection: HeadConnection, heard: list[ToFrontend], *, logs: bool) -> Examined:
    """Have the head's agents examine its workers; keep what the head says meanwhile."""
    connection.hear(heard.append)
    async with connection:
        connection.send(FollowLogs(logs))
        found: Examined = await connection.request(Examine(0))
        await connection.received(SnapshotTaken)
        if logs:
            await asyncio.sleep(LOGS_S)
        return found


def _no_answer(cluster: ConnectionFile | None) -> Verdict:
    """Say how a head is that does not answer."""
    stat = process_stat(cluster.pid) if cluster else None
    if cluster and stat and stat.stopped:
        text = f"the head's process is stopped by a signal: kill -CONT {cluster.pid}"
        return Verdict("head-stopped", text, ("its agents end with their lease",))
    return Verdict(
        "head-silent", "the head does not answer", (f"state {stat.state}",) if stat else ()
    )


def pack(
    path: Path, said: Mapping[str, Any], heard: Sequence[ToFrontend], env_values: Iterable[str] = ()
) -> None:
    """Write a bundle of `why --json`, versions, and what the head said; raises RunError."""
    snapshots = [each.snapshot for each in heard if isinstance(each, SnapshotTaken)]
    runs = snapshots[-1].runs if snapshots else ()
    given = [value for run in runs for _, value in run.parameters if not value.isdecimal()]
    values = (*os.environ.values(), *env_values, *given)
    hidden = {value for value in values if len(value) >= LEAST_CHARACTERS}
    events = [each.event for each in heard if isinstance(each, EventHappened)]
    printed: dict[str, list[str]] = {}
    for each in heard:
        if isinstance(each, LogLines):
            printed.setdefault(each.worker, []).extend(each.lines)
    files: dict[str, Any] = {
        "why.json": said,
        "versions.txt": versions(),
        "events.txt": "\n".join(
            f"{time.strftime('%F %T', time.localtime(each.at))} {each.severity} {each.subject} "
            f"{each.kind}: {each.text}"
            for each in events
        ),
        **{f"logs/{name}.txt": "\n".join(lines) for name, lines in printed.items()},
    }
    if snapshots:
        runs = tuple(replace(run, parameters=(), result_json="") for run in runs)
        files["snapshot.json"] = asdict(replace(snapshots[-1], runs=runs, spans=()))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as bundle:
        for name, value in files.items():
            clean = _clean(value, hidden)
            text = clean if isinstance(clean, str) else json.dumps(clean, indent=1)
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"gputui-why/{name.replace(':', '-')}")
            entry.size, entry.mtime = len(data), int(time.time())
            bundle.addfile(entry, io.BytesIO(data))
    write_over("--bundle", path, packed.getvalue(), 0o600)


def versions() -> str:
    """Return gputui's version, Python's, the system's, and those of the packages here."""
    found = sorted({f"{each.name} {each.version}" for each in distributions()})
    return "\n".join([f"gputui {__version__}", f"Python {sys.version}", *os.uname()[::2], *found])


def _clean(value: Any, hidden: Iterable[str]) -> Any:
    """Return a value of JSON with each text in it as `without_secrets` makes it."""
    if isinstance(value, str):
        return without_secrets(value, hidden)
    if isinstance(value, Mapping):
        return {key: _clean(each, hidden) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each, hidden) for each in value]
    return value


def without_secrets(text: str, hidden: Iterable[str] = ()) -> str:
    """Return a text without keys, tokens, values of variables, and home folders.

    >>> without_secrets("HF_HOME=/data/x postgres://ann:pw@db/x in /home/ann/train.py")
    'HF_HOME=[value] postgres://[password]@db/x in ~/train.py'
    """
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "[value]")
    for pattern, instead in SECRETS:
        text = re.sub(pattern, instead, text, flags=re.DOTALL)
    return text
