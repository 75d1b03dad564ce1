"""Pack what explains a cluster into a file for a report, without secrets.

Everything goes through `without_secrets` as text: keys, tokens, values of environment variables and
folders below somebody's home are replaced before anything is written.
"""

import io
import json
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from gputui.model.snapshot import Event, Snapshot
from gputui.protocol.shared import LogLines
from gputui.version import __version__

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


def pack(
    path: str,
    said: Mapping[str, Any],
    snapshot: Snapshot | None,
    events: Iterable[Event],
    logs: Iterable[LogLines],
    env_values: Iterable[str] = (),
) -> None:
    """Write a bundle of `why --json`, versions, the snapshot, events and logs; raises OSError."""
    runs = snapshot.runs if snapshot else ()
    given = [value for run in runs for _, value in run.parameters if not value.isdecimal()]
    values = (*os.environ.values(), *env_values, *given)
    hidden = {value for value in values if len(value) >= LEAST_CHARACTERS}
    printed: dict[str, list[str]] = {}
    for each in logs:
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
    if snapshot is not None:
        runs = tuple(replace(run, parameters=(), result_json="") for run in runs)
        shown = asdict(replace(snapshot, runs=runs, spans=()))
        files["snapshot.json"] = shown
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as bundle:
        for name, value in files.items():
            clean = _clean(value, hidden)
            text = clean if isinstance(clean, str) else json.dumps(clean, indent=1)
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"gputui-why/{name.replace(':', '-')}")
            entry.size, entry.mtime = len(data), int(time.time())
            bundle.addfile(entry, io.BytesIO(data))
    Path(path).chmod(0o600)


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
