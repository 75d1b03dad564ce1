"""One worker of a host: its specification, its process if it has one, its output, its next start.

Output is always drained, the last lines kept, and sent on while a head follows: a worker that
prints 100 MB neither waits for anybody nor fills the agent's memory. How its process ended is
explained, with a hint, by all that is known of it (`explain`).
"""

import asyncio
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gputui.model.examination import ThreadStack, Transfers
from gputui.model.plan import WorkerSpec
from gputui.process import procfs
from gputui.process.child import PipeLines, signal_name
from gputui.process.handle import Handle
from gputui.process.lifetime import END_SIGNALS
from gputui.protocol.agent import FromAgent, StartWorkers, WorkerReady
from gputui.protocol.forking import CANNOT_LISTEN, WorkerEnding
from gputui.protocol.shared import LogLines

BACKOFF_S = (0.5, 0.5, 1.0, 2.0, 4.0)
"""Before the next start of a worker, by how many starts in a row have failed."""

CRASH_LOOP_AFTER = 5
"""Starts in a row that failed; one that came up is started again however often tasks end it."""

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)
IMPORT_ERROR = "import-error"
"""Never the reason of a signal: libraries print those that they catch."""
FAILURES = (
    ("missing-library", "a library is missing: ", "cannot open shared object|DynamicLibNotFound"),
    (IMPORT_ERROR, "", "(Import|ModuleNotFound)Error"),
    (
        "device-memory",
        "device memory ran out: ",
        "(?i)OutOfMemoryError|cuda.*(out.?of.?memory|MemoryAllocation)",
    ),
    ("illegal-address", "a kernel used an illegal address: ", "(?i)illegal.?(memory|address)"),
    ("gpu-lost", "its GPU is lost: ", "(?i)fallen off the bus|gpu is lost|DEVICE_UNAVAILABLE"),
    ("cuda-error", "", r"^(?=.*(?i:error|fail)).*(\bCUDA|cuda[A-Z]|cupy)"),
)
"""Kinds of failures: what is said before the line that tells of it, and what that line has."""
MORE = "give it more with memory=, or use smaller chunks"
LESS = "give workers less with memory=, or use fewer of them"
DISK_FULL = "[Errno 28]"

TAIL_LINES = 20
"""How many of the last lines an end is explained by."""
KEPT_LINES = 200
SEND_EVERY_S = 0.25
SENDINGS_AT_ONCE = 4
"""After silence, without a delay: output of a short task arrives before its run ends."""
LINES_A_MESSAGE = 64
"""However long they are, so many fit into a line of the channel."""
DRAIN_READS = 64
LINES_A_SENDING = 200
"""More than these in one interval are counted, not sent."""


class WorkerOutput:
    """The output of one worker, over all its restarts."""

    def __init__(self, worker: str, send: Callable[[FromAgent], None]) -> None:
        self.following = False
        self._worker = worker
        self._send = send
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        self._unsent: deque[str] = deque(maxlen=LINES_A_SENDING)
        self._dropped = 0
        self._own = 0
        """The number of lines since the pipe was opened: those before are of an earlier process."""
        self._pipe: PipeLines | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._due_at = 0.0

    def open(self, descriptor: int) -> None:
        """Read the output of another process from a pipe, which is the output's own from now on."""
        self.close()
        self._own = 0
        self._pipe = PipeLines(descriptor, self._keep)

    def drain(self) -> None:
        """Read the last output of an ended worker, without waiting for processes that still
        print."""
        for _ in range(DRAIN_READS):
            if self._pipe is None or not self._pipe.read():
                return

    def tail(self, count: int) -> tuple[str, ...]:
        """Return the last lines of the present process, or of the last one."""
        lines = list(self._kept)[max(0, len(self._kept) - self._own) :]
        if self._pipe is not None and self._pipe.partial:
            lines.append(self._pipe.partial.decode("utf-8", "replace"))
        return tuple(lines[-count:])

    def follow(self, on: bool) -> None:
        """Begin to send lines, after those that are kept; or stop."""
        if on and not self.following:
            for lines in _pieces(tuple(self._kept)):
                self._send(LogLines(self._worker, lines, time.time(), earlier=True))
        self.following = on

    def close(self) -> None:
        """Close the pipe and keep its output, an unfinished line as a line."""
        if self._pipe is not None:
            self._pipe.close()

    def _keep(self, text: str) -> None:
        """Keep a line, and send it soon where a head follows."""
        self._kept.append(text)
        self._own += 1
        if self.following:
            self._dropped += len(self._unsent) == LINES_A_SENDING
            self._unsent.append(text)
            if self._sending is None:
                # One sending every so often, but the first few at once.
                earliest_s = time.monotonic() - SENDINGS_AT_ONCE * SEND_EVERY_S
                self._due_at = max(self._due_at, earliest_s) + SEND_EVERY_S
                wait_s = max(0.0, self._due_at - time.monotonic())
                self._sending = asyncio.get_running_loop().call_later(wait_s, self._send_lines)

    def _send_lines(self) -> None:
        self._sending = None
        for lines in _pieces(tuple(self._unsent)):
            self._send(LogLines(self._worker, lines, time.time(), self._dropped))
            self._dropped = 0
        self._unsent.clear()


def _pieces(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield these lines, as many at a time as a message may have."""
    for start in range(0, len(lines), LINES_A_MESSAGE):
        yield lines[start : start + LINES_A_MESSAGE]


@dataclass(slots=True)
class Answer:
    """What a worker answers that is examined."""

    threads: list[ThreadStack] = field(default_factory=list)
    transfers: Transfers = field(default_factory=Transfers)
    dumped: list[str] = field(default_factory=list)
    """The lines that `faulthandler` wrote."""
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, part: ThreadStack | Transfers) -> None:
        """Take a part of the answer of its Python; transfers come last."""
        if isinstance(part, Transfers):
            self.transfers = part
            self.complete.set()
        else:
            self.threads.append(part)


@dataclass(slots=True)
class WorkerProcess:
    """One worker, over all its processes."""

    spec: WorkerSpec
    order: StartWorkers
    output: WorkerOutput
    process: Handle | None = None
    pipes: list[int] = field(default_factory=list)
    """The reading ends of the pipes for its output and its reports, until it was forked."""
    forking: bool = False
    """Whether it was ordered from the forkserver, which has not reported its pid yet."""
    restarts: int = 0
    failed_starts: int = 0
    """In a row."""
    stopping: bool = False
    over_limit_bytes: int | None = None
    """The memory limit that it was ended at."""
    began_at: float = 0.0
    """Seconds since the epoch."""
    oom_kills: int = 0
    """How many processes the kernel had ended for memory when it was forked."""
    limit_hits: int = 0
    """How often memory had run out at a group's limit by then."""
    ending: WorkerEnding | None = None
    """What it said when it ended by itself."""
    restarting: bool = False
    """Whether it was asked to end, to be started again."""
    reports: PipeLines | None = None
    crash_loop: bool = False
    ready: WorkerReady | None = None
    """What it last said when it had registered, and opened its device."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    restart: asyncio.TimerHandle | None = None
    answer: Answer | None = None
    """Of its last examination."""

    @property
    def pid(self) -> int | None:
        """Its process, None while it has none."""
        return self.process.pid if self.process else None

    @property
    def came_up(self) -> bool:
        """Whether its process, or the last one, registered and opened its device."""
        return self.ready is not None and bool(self.ready.device_uuid or not self.spec.device_uuid)

    def begin(self, oom_kills: int, limit_hits: int) -> None:
        """Forget the process before, and open the pipes of the next; raises OSError."""
        self.ended = asyncio.Event()
        self.ready, self.ending, self.over_limit_bytes = None, None, None
        self.restarting = False
        self.oom_kills, self.limit_hits = oom_kills, limit_hits
        self.began_at = time.time()
        while len(self.pipes) < 2:
            reads, writes = os.pipe()
            os.close(writes)
            self.pipes.append(reads)

    def kill(self) -> None:
        """Kill its process, and all that this started."""
        if self.process is not None:
            self.process.kill_group()

    def keep_limit(self, share: float) -> None:
        """Kill it if it has come up to a share of its limit."""
        limit = self.spec.memory_limit_bytes
        if self.pid is None or self.over_limit_bytes is not None or not limit:
            return
        stat = procfs.process_stat(self.pid)
        if stat is not None and stat.rss_bytes >= limit * share:
            self.over_limit_bytes = limit
            self.kill()

    def cancel_restart(self) -> None:
        """Cancel a start that is due."""
        if self.restart is not None:
            self.restart.cancel()
            self.restart = None

    def next_start(self, kind: str) -> float | None:
        """Return in how many seconds to start it again after an end; None stops it for good."""
        if kind == "closed":
            return 0.0
        self.failed_starts = 0 if self.came_up else self.failed_starts + 1
        if self.failed_starts >= CRASH_LOOP_AFTER or kind == "address":
            self.crash_loop = True
            return None
        return BACKOFF_S[self.failed_starts]


def explain(
    worker: WorkerProcess, status: int, *, oom_kills: int, limit_hits: int, device: str
) -> tuple[str, str]:
    """Return the kind and the reason of a process's end, from its `status` of `waitpid`.

    `oom_kills` and `limit_hits` are counted at its end, as those of the worker were at its start;
    `device` says what befell its GPU meanwhile.
    """
    if worker.stopping:
        return "stopped", "stopped"
    whose = ""
    if oom_kills > worker.oom_kills:
        at_limit = limit_hits > worker.limit_hits
        whose = "a control group's limit is reached" if at_limit else "the host has none"
    kind, reason = _explained(worker, os.waitstatus_to_exitcode(status), whose)
    return kind, f"{reason}; its GPU: {device}" if device else reason


def _explained(worker: WorkerProcess, code: int, whose: str) -> tuple[str, str]:
    """Explain an end; `whose` memory ran out when the kernel ended any process for that."""
    said = map(str.strip, worker.output.tail(TAIL_LINES))
    lines = [line for line in said if line and " - INFO - " not in line]
    last, ending = lines[-1] if lines else "", worker.ending
    if worker.over_limit_bytes is not None:
        limit = sized(worker.over_limit_bytes)
        disk_full = any(DISK_FULL in line for line in lines)
        more = "it could not spill: its disk is full" if disk_full else MORE
        return "memory-limit", f"it reached its memory limit of {limit}; {more}"
    if worker.restarting:
        return "closed", "it was restarted"
    if code == -signal.SIGKILL and whose:
        return "oom-killer", f"memory ran out ({whose}): the kernel ended it; {LESS}"
    if code < 0:
        told = filter(None, map(_failure, reversed(lines)) if -code in CRASHES else ())
        failures = ((kind, why) for kind, why in told if kind != IMPORT_ERROR)
        kind, why = next(failures, ("signal", ""))
        return kind, f"{why} ({signal_name(-code)})" if why else _of_signal(-code)
    if ending and ending.signal:
        return "signal", _of_signal(ending.signal)
    if ending and not code:
        return "closed", "it was closed by the scheduler or its client"
    if last.startswith(CANNOT_LISTEN):
        return "address", last
    if worker.came_up and not ending:
        raised = last.startswith(("SystemExit", "KeyboardInterrupt"))
        how = "raised it" if raised else "or a library ended it (os._exit)"
        last = f"a task {how}{': ' * bool(last)}{last}"
        return "crashed", f"exit code {code}: {last}"
    return _failure(last) or ("crashed", f"exit code {code}{': ' * bool(last)}{last}")


def _failure(line: str) -> tuple[str, str] | None:
    """Return the kind and the reason of a failure that a line tells of.

    >>> _failure("OSError: libcudart.so.12: cannot open shared object file")[1]
    'a library is missing: OSError: libcudart.so.12: cannot open shared object file'
    """
    found = ((kind, words + line) for kind, words, has in FAILURES if re.search(has, line))
    return next(found, None)


def _of_signal(number: int) -> str:
    """Describe an end by a signal.

    >>> _of_signal(9), _of_signal(11)
    ('killed (SIGKILL) from outside gputui', 'SIGSEGV: a library crashed')
    """
    name = signal_name(number)
    if number == signal.SIGKILL:
        return f"killed ({name}) from outside gputui"
    if number in END_SIGNALS:
        return f"ended ({name}) from outside gputui, by this user or root"
    return f"{name}: a library crashed" if number in CRASHES else name


def sized(size_bytes: int) -> str:
    """Return a memory limit with its unit.

    >>> sized(400 * 2**20), sized(3 * 2**29)
    ('400 MiB', '1.5 GiB')
    """
    if size_bytes < 2**30:
        return f"{size_bytes / 2**20:,.0f} MiB"
    return f"{size_bytes / 2**30:,.1f} GiB"
