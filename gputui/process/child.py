"""A child process from its start to its end: the only class that starts and ends children.

It starts a command with its environment and pipes, keeps the last lines that it writes to stderr,
and says how it ended. No wait is unbounded and none depends on the child's pipes: a grandchild may
keep them open, and unread output may fill them. The end comes from a pidfd where the kernel has
them (Linux 5.3), else from a thread that waits.

A `Child` belongs to the event loop that it was started in; `end` leaves nothing of it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO

from gputui.model.frozen import frozen
from gputui.process.background import within
from gputui.process.lifetime import dump_core_as_before
from gputui.protocol.streams import SocketStream

LOG_LINES = 20
"""How many of the last lines of stderr are kept."""
LINE_BYTES = 2000
"""The most of a line that is kept: the end of one that never ends."""
READ_BYTES = 2**18
KILLED_S = 5.0
"""How long the kernel may take to end a killed process."""
LAST_WORDS_S = 0.2
"""How long stderr may stay open after the end: a grandchild may have it."""


class Child:
    """A child of this process.

    `status` is its exit status as `subprocess` has it, None while it runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.DEVNULL,
        stderr: int | IO[bytes] | None = subprocess.PIPE,
        own_session: bool = False,
        cwd: str | None = None,
        pass_fds: Sequence[int] = (),
        said: Callable[[str], None] | None = None,
    ) -> None:
        """Start a command in `env` and `cwd`; raises OSError when it cannot be.

        With `own_session` the terminal's signals do not reach it, and it leads a process group.
        `said` is called with each line of its stderr.
        """
        self._process = subprocess.Popen(
            list(command),
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=own_session,
            cwd=cwd,
            pass_fds=pass_fds,
        )
        self.pid = self._process.pid
        dump_core_as_before(self.pid)
        self._leads_group = own_session
        self._ended = asyncio.Event()
        errors = self._process.stderr
        self._said = said
        self._log_lines: deque[str] = deque(maxlen=LOG_LINES)
        self._log = PipeLines(_take(errors), self._hear) if errors else None
        self._watch()

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def last_log_lines(self) -> tuple[str, ...]:
        """The last lines that it wrote to stderr."""
        last = [self._log.partial.decode("utf-8", "replace")] if self._log else []
        return (*self._log_lines, *filter(None, last))[-LOG_LINES:]

    @property
    def reason(self) -> str:
        """How it ended, with its last line where it failed; "" while it runs."""
        if self.status is None:
            return ""
        last = f": {self.last_log_lines[-1]}" if self.status and self.last_log_lines else ""
        return f"{ending(self.status)}{last}"

    async def stream(self) -> SocketStream:
        """Return its stdin and stdout, both of which must be pipes, as one stream."""
        assert self._process.stdin and self._process.stdout
        return await SocketStream.of_pipes(_take(self._process.stdout), _take(self._process.stdin))

    async def wait(self, bound_s: float | None = None) -> int | None:
        """Return the exit status once it ended and its last lines were read.

        None when it still runs after `bound_s`.
        """
        await within(bound_s, self._ended.wait())
        if self.status is not None and self._log:
            await within(LAST_WORDS_S, self._log.closed.wait())
        return self.status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, and to its group where it leads one; nothing when it has ended."""
        if self._ended.is_set():
            return  # until then its pid is its own: nothing else reaps it
        with contextlib.suppress(ProcessLookupError):
            if self._leads_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    async def end(self, grace_s: float, ask: signal.Signals | None = signal.SIGTERM) -> int | None:
        """Ask it to end, kill it after `grace_s`, and return its exit status.

        `ask` is None where it was asked in another way. Where it led a group, nothing of that is
        left. None is returned for what the kernel cannot end within some seconds.
        """
        if ask is not None:
            self.send_signal(ask)
        if await self.wait(grace_s) is None:
            self.send_signal(signal.SIGKILL)
            await self.wait(KILLED_S)
        if self._log:
            self._log.close()
        return self.status

    def _hear(self, line: str) -> None:
        self._log_lines.append(line.rstrip())
        if self._said:
            self._said(line.rstrip())

    def _watch(self) -> None:
        """Have `_ended` set when it ended."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.pid)
        except (OSError, AttributeError):  # an old kernel; a Mac
            threading.Thread(target=self._wait_in_thread, args=(loop,), daemon=True).start()
            return

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._has_ended()

        loop.add_reader(descriptor, ended)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:  # a Mac, up to Python 3.12
            self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(self._has_ended)

    def _has_ended(self) -> None:
        """End its group while the pid is still its own, then reap it."""
        if self._leads_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._ended.set()


@frozen
class Ended:
    """A command's end, and its output."""

    status: int | None
    """As of `Child`; None where it was killed for taking longer than its bound."""
    output: str
    last_log_lines: tuple[str, ...]


async def run(command: Sequence[str], bound_s: float | None = None) -> Ended:
    """Run a command to its end; raises OSError if it cannot start. It is killed after `bound_s` and
    on cancellation.
    """
    in_memory = hasattr(os, "memfd_create")  # not on a Mac
    with os.fdopen(os.memfd_create("output"), "rb") if in_memory else TemporaryFile() as output:
        child = Child(command, stdout=output, own_session=True)
        try:
            status = await child.wait(bound_s)
        finally:
            await child.end(0, ask=None)
        output.seek(0)
        said = output.read().decode("utf-8", "surrogateescape")
        return Ended(status, said, child.last_log_lines)


class PipeLines:
    """The lines that come through a pipe, which is always drained."""

    def __init__(self, descriptor: int, heard: Callable[[str], None]) -> None:
        """Take over a descriptor, and call `heard` with each line."""
        self.partial = b""
        """A line that has no end yet."""
        self._descriptor: int | None = descriptor
        self._heard = heard
        self.closed = asyncio.Event()
        os.set_blocking(descriptor, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self.read)

    def read(self) -> bool:
        """Take what has come; return False if that is nothing."""
        if self._descriptor is None:
            return False
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        *lines, partial = (self.partial + data).split(b"\n")
        self.partial = partial[-LINE_BYTES:]
        for line in lines:
            self._heard(line[:LINE_BYTES].decode("utf-8", "replace"))
        if not data:
            self.close()
        return bool(data)

    def close(self) -> None:
        """Read no more; what has no end is a line, too."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            if self.partial:
                last, self.partial = self.partial, b""
                self._heard(last.decode("utf-8", "replace"))
        self.closed.set()


def ending(status: int) -> str:
    """Describe how a process ended, by its exit status as `subprocess` has it.

    >>> ending(-9), ending(1)
    ('was killed by SIGKILL', 'ended with exit status 1')
    """
    if status >= 0:
        return f"ended with exit status {status}"
    return f"was killed by {signal_name(-status)}"


def signal_name(number: int) -> str:
    """Return a signal's name; most of those for real time have none.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _take(pipe: IO[bytes]) -> int:
    """Return a descriptor of a pipe's that belongs to the caller alone."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
