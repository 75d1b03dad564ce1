"""Every run, recorded under the user's state directory: one 0700 folder each.

`Recording` writes the record of a run that goes on, `run.json`, its telemetry and its log. A record
is written when its run starts, now and then, and when it ends, each time as a whole, so that a
reader never sees half of one. A run whose process is gone without an end is shown as lost. The
processes of another machine or container that shares this home are not seen here: a run there
counts as lost when it has written nothing for a week.

A full disk does not end a run: a warning is printed once, and the run goes on unrecorded.
"""

import contextlib
import os
import shlex
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, TypedDict

from gputui.errors import UsageError
from gputui.folders import runs_dir, write_whole
from gputui.model.frozen import frozen
from gputui.model.snapshot import RunState, RunStatus
from gputui.model.usage import Failure, Usage
from gputui.presets.definition import json_text
from gputui.process.procfs import own_place, started_by
from gputui.protocol.frontend import new_run_id
from gputui.protocol.programs import is_program
from gputui.runs.telemetry import VERSION, Telemetry

FILE = "run.json"
LOG = "log.txt"
TELEMETRY = "telemetry.json"
MOST_LOG_BYTES = 10 * 2**20
"""The maximum size of a log; of later output the last lines are kept."""
LOG_ROOM_AT_END = 2**16
"""How a run ended is written all the same."""
LAST_NOTES = 100

CLOCKS_DIFFER_S = 60.0
"""How far the time of day may have been set while a run went on."""

SILENT_ELSEWHERE_S = 7 * 86_400.0
"""A run of another machine that has written nothing for so long counts as lost."""


class ResultParts(TypedDict, total=False):
    """What is shown of the `result` of a record, where it is there."""

    result: dict[str, Any]
    units: dict[str, str]
    versions: dict[str, str]
    figure: dict[str, Any] | None
    backend: str
    failed_hosts: tuple[dict[str, str], ...]


MOST_DEVICES = 16
"""GPUs of a run of which frontends get each one's usage."""
MOST_SHOWN = 2**16
"""Characters of a result that goes to the frontends; `gputui runs show` has all of it."""
GONE = "its process is gone: it was killed, or its machine went down"
"""The result of a lost run."""
TAIL_BYTES = 2**14
TAIL_LINES = 8


def is_script(name: str) -> bool:
    """Return whether a run's name is a script's; a preset in a file has its name behind a colon.

    >>> is_script("train.py"), is_script("mine.py:PRESET"), is_script("svd")
    (True, False, False)
    """
    return name.endswith(".py") and not is_program(name)


@frozen
class RunRecord:
    """One run, as far as it went."""

    id: str
    preset: str
    parameters: Mapping[str, Any]
    backend: str
    hosts: str
    """The hosts as they were given: a path, "-" or inline text; "" is this machine."""
    state: RunState
    started_at: float
    pid: int
    version: str
    machine: str = ""
    """Where its process is, with `boot` and `pids`, as in `Place`; "" in earlier releases."""
    boot: str = ""
    pids: str = ""
    ended_at: float | None = None
    workers: tuple[str, ...] = ()
    """Their names, once they are up."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Stage → seconds, in their order."""
    restarts: int = 0
    """Of workers, during it."""
    saved: tuple[str, ...] = ()
    """Files that were written at its end."""
    summary: str = ""
    """Its result in a few words."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The `--json` object of an ended run, with `figure`, `units` and `versions`."""
    failure: Failure | None = None
    usage: Usage | None = None
    """What it took, as far as that was seen."""
    cwd: str = ""
    """The folder that it was started in; "" in earlier releases."""

    @property
    def error(self) -> str:
        """How it failed, with the hint; "" where it did not."""
        return self.failure.text if self.failure else ""

    @property
    def elapsed_s(self) -> float | None:
        """Its whole duration; None while it runs."""
        return None if self.ended_at is None else self.ended_at - self.started_at

    @property
    def elsewhere(self) -> str:
        """The other machine, or container, whose process this run is; "" for this one."""
        own = own_place()
        return "" if (self.boot, self.pids) in (("", ""), (own.boot, own.pids)) else self.machine

    @property
    def words(self) -> str:
        """The run in a line: its error, its result in a few words, or the machine where it runs."""
        goes_on = not self.state.ended and self.elsewhere
        return f"on {self.elsewhere}" if goes_on else self.error or self.summary

    @property
    def folder(self) -> Path:
        """The folder of its record, log and saved arrays."""
        return runs_dir() / self.id

    @property
    def log(self) -> Path:
        """The lines of its log."""
        return self.folder / LOG


def new_record(
    preset: str,
    parameters: Mapping[str, Any],
    *,
    backend: str,
    hosts: str,
    version: str,
    id: str = "",
) -> RunRecord:
    """Return the record of a run that starts now, in this process; with a new id, unless given."""
    return RunRecord(
        id=id or new_run_id(preset),
        preset=preset,
        parameters=dict(parameters),
        backend=backend,
        hosts=hosts,
        state=RunState.RUNNING,
        started_at=time.time(),
        pid=os.getpid(),
        version=version,
        cwd=str(Path.cwd()),
        **asdict(own_place()),
    )


def as_object(record: RunRecord) -> dict[str, Any]:
    """Return a record as its file and `runs --json` have it."""
    kind = record.failure.type if record.failure else ""
    return {**asdict(record), "error_type": kind, "error": record.error}


def status_of(record: RunRecord) -> RunStatus:
    """Return a record as the screen and other frontends have the run.

    It stands in every snapshot of its cluster: a result that is too long is left out, its figure
    first.
    """
    kept = record.result
    for result in (kept, {key: value for key, value in kept.items() if key != "figure"}, {}):
        result_json = json_text(result) if result else ""
        if len(result_json) <= MOST_SHOWN:
            break
    usage = record.usage
    if usage is not None and len(usage.devices) > MOST_DEVICES:
        usage = replace(usage, devices=())
    return RunStatus(
        id=record.id,
        preset=record.preset,
        parameters=as_typed(record.parameters),
        state=record.state,
        started_at=record.started_at,
        ended_at=record.ended_at,
        summary=record.words if record.failure is None else "",
        result_json=result_json,
        restarts=record.restarts,
        failure=record.failure.shown if record.failure else None,
        timings=tuple(record.timings.items()),
        usage=usage if record.state.ended else None,
        hosts=record.hosts,
        cwd=record.cwd,
        backend=record.backend,
        versions=tuple(({"gputui": record.version} | record.result.get("versions", {})).items()),
    )


def as_typed(parameters: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return parameters as they were typed, without those that are empty."""
    return tuple((name, _typed(value)) for name, value in parameters.items() if value != [])


def _typed(value: object) -> str:
    """Return a recorded parameter as it was typed; a script's arguments as a shell takes them."""
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def log_tail(id: str) -> tuple[str, ...]:
    """Return the last lines of a run's log."""
    try:
        with (runs_dir() / id / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return tuple(file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:])
    except OSError:
        return ()


def telemetry_of(record: RunRecord) -> Telemetry:
    """Read a run's telemetry; raises UsageError where it cannot be read."""
    import msgspec

    try:
        written = msgspec.json.decode((record.folder / TELEMETRY).read_bytes(), type=dict[str, Any])
        if written.get("version", VERSION) != VERSION:
            raise UsageError(f"{record.id}: its telemetry is of another version of gputui")
        return msgspec.convert(written, Telemetry)
    except FileNotFoundError:
        yet = "" if record.state.ended else " yet"
        raise UsageError(f"{record.id}: no telemetry was recorded{yet}") from None
    except (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"{record.id}: its telemetry cannot be read: {error}") from error


def write(record: RunRecord) -> None:
    """Write a record as a whole, into a folder of its own; raises OSError."""
    record.folder.parent.mkdir(parents=True, exist_ok=True)
    record.folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(record.folder / FILE, json_text(as_object(record), indent=1).encode())


def prune(kept: int) -> None:
    """Keep the `kept` records that were written last, and each run that goes on; remove the others.

    Only those that may go are read. Raises OSError.
    """
    paths = list(runs_dir().glob(f"*/{FILE}"))
    if len(paths) > kept:
        paths.sort(key=_written_at, reverse=True)
        for record in map(_read, paths[kept:]):
            if record is not None and record.state.ended:
                shutil.rmtree(record.folder, ignore_errors=True)


def _written_at(path: Path) -> tuple[float, str]:
    """Return when a record was written, and its id, which is by the clock of a time zone."""
    try:
        return path.stat().st_mtime, path.parent.name
    except FileNotFoundError:  # another run removes it
        return 0.0, ""


def recorded() -> tuple[RunRecord, ...]:
    """Return all records, the newest first; a folder without a readable one is passed over."""
    found = [_read(path) for path in runs_dir().glob(f"*/{FILE}")]
    return tuple(sorted((r for r in found if r), key=lambda r: r.started_at, reverse=True))


def find(id_: str) -> RunRecord:
    """Return the run of this id, of the only one that begins or ends so, or "last".

    Raises:
        UsageError: no record is found, or more than one.
    """
    every = recorded()
    if id_ == "last" and every:
        return every[0]
    found = [r for r in every if r.id == id_] or [
        r for r in every if id_ and (r.id.startswith(id_) or r.id.endswith(id_))
    ]
    if len(found) == 1:
        return found[0]
    called = f"names {len(found):,} runs" if found else "is no run"
    raise UsageError(f"'{id_}' {called}; `gputui runs` lists them")


def _read(path: Path) -> RunRecord | None:
    import msgspec  # hosts are without it, and tasks there may import gputui.runs

    if not path.is_file():  # one that is a pipe would be waited for
        return None
    try:
        fields = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if "failure" not in fields and fields.get("error_type"):  # up to 0.2.0: as a text
            fields["failure"] = {"type": fields["error_type"], "message": fields.get("error", "")}
        record = msgspec.convert(fields, RunRecord)
        msgspec.convert(record.result, ResultParts)
        for moment in (record.started_at, record.ended_at or 0.0):
            time.localtime(moment)
        if record.id != path.parent.name:
            return None
        lost = not record.state.ended and not _lives(record)
    except (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None
    return replace(record, state=RunState.LOST, summary=GONE) if lost else record


def _lives(record: RunRecord) -> bool:
    """Whether a run goes on: its process is there, and no later one that was given its number.

    Of a run elsewhere, by when it last wrote anything, and whether its machine was started again.
    """
    if record.elsewhere:
        own, files = own_place(), (record.folder / FILE, record.log)
        written_at = max((path.stat().st_mtime for path in files if path.exists()), default=0.0)
        started_again = record.machine == own.machine and record.boot != own.boot
        return not started_again and time.time() - written_at < SILENT_ELSEWHERE_S
    return started_by(record.pid, record.started_at + CLOCKS_DIFFER_S)


class Recording:
    """Writes what happens in a run that goes on; calls `warn` when that cannot be done."""

    def __init__(self, record: RunRecord, warn: Callable[[str], None]) -> None:
        self.record = record
        self._warn = warn
        self._warned = False
        self._timings = defaultdict[str, float](float)
        self._stage = ""
        self._stage_from = 0.0
        self._log_room = MOST_LOG_BYTES
        self._last = deque[bytes](maxlen=LAST_NOTES)
        """Of what came after the log was full."""
        with self._writing():
            write(record)

    def note(self, *lines: str, at: float | None = None) -> None:
        """Add lines of one moment, `at` or now, to the log: a file that only this user can read."""
        moment = time.time() if at is None else at
        stamp = time.strftime("%H:%M:%S", time.localtime(moment)) + f".{int(moment % 1 * 1000):03}"
        text = "".join(f"{stamp}  {line}\n" for line in lines).encode("utf-8", "replace")
        room, self._log_room = self._log_room, self._log_room - len(text)
        if room <= 0:
            self._last.append(text[-LOG_ROOM_AT_END:])
            return
        if self._log_room <= 0:
            begun = b"".join(text[:room].rpartition(b"\n")[:2])
            self._last.append(text[len(begun) :][-LOG_ROOM_AT_END:])
            full = f"{stamp}  this log is full: only its last lines follow\n"
            text = begun + full.encode()
        self._append(text)

    def _append(self, text: bytes) -> None:
        with self._writing():
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            descriptor = os.open(self.record.log, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)

    def stage(self, name: str) -> None:
        """Note that the run is at another stage now; how long each took is recorded."""
        now = time.monotonic()
        if self._stage:
            self._timings[self._stage] += now - self._stage_from
        self._stage, self._stage_from = name, now
        if name:
            self.note(name)

    def keep(self, result: Mapping[str, Any]) -> None:
        """Record the result before printing or saving it, which may fail."""
        self.record = replace(self.record, result=dict(result))
        with self._writing():
            write(self.record)

    def took(self, usage: Usage | None, telemetry: Telemetry) -> None:
        """Record what the run took so far, and its telemetry."""
        import msgspec

        self.record = replace(self.record, usage=usage)
        with self._writing():
            write_whole(self.record.folder / TELEMETRY, msgspec.json.encode(telemetry))
            write(self.record)

    def end(self, state: RunState, **outcome: Any) -> None:
        """Record how the run ended; only the first call counts.

        `outcome` are other fields: result, failure, restarts, workers, saved, summary.
        Ctrl-C while the cluster of a finished run stops does not change how the run ended.
        """
        if self.record.state.ended:
            return
        self.stage("")
        self.record = replace(
            self.record, state=state, ended_at=time.time(), timings=dict(self._timings), **outcome
        )
        trace = self.record.failure.traceback if self.record.failure else ()
        said = f"{state} {self.record.error}".rstrip().splitlines()
        last = b"".join(self._last)
        self._append(
            last[-LOG_ROOM_AT_END:].partition(b"\n")[2] if last[LOG_ROOM_AT_END:] else last
        )
        self._log_room = max(self._log_room, LOG_ROOM_AT_END)
        self.note(*(f"traceback | {line}" for line in trace), *said)
        with self._writing():
            write(self.record)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                self._warned = True
                why = error.strerror or error
                self._warn(f"this run is not recorded: {self.record.folder}: {why}")
