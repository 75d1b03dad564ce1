"""`--exec -- CMD`: a program on GPUs that are free, and nothing left behind.

The head finds GPUs and starts the processes; what they print comes here, to stdout and stderr as
they wrote it, line by line with the rank in front where there are several. Signals go to all of
them, and what is typed here to rank 0.
"""

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputui.errors import HeadError, RunError
from gputui.presets import RunProgress
from gputui.process.background import within
from gputui.protocol.frontend import AwaitWorkers, ToFrontend
from gputui.protocol.programs import (
    FINDING_GPUS,
    PIECE_BYTES,
    RUNS,
    BytesTaken,
    EndRun,
    Place,
    Placed,
    ProgramExited,
    ProgramInput,
    ProgramOutput,
    ProgramStarted,
    ProgramWaits,
    ResizeTerminal,
    RunPrograms,
    SignalProgram,
    packed,
    unpacked,
)
from gputui.runs.run import (
    OngoingRun,
    OpenCluster,
    RunRequest,
    recorded_run,
    warn,
)

GRACE_S = 5.0
"""How long processes may go on after a signal, and the others after the first that fails."""
LONGEST_LINE = 2**24
"""A line is kept until its end comes; a longer one is cut."""
LONGEST_DRAWN_OVER = 2**16
"""The same for a line that is drawn over by `\\r`, as progress bars are."""


async def run_program(order: RunPrograms, request: RunRequest, open_cluster: OpenCluster) -> int:
    """Run a program; returns the exit code of the first process that failed, or 0.

    Raises GputuiError where it was not started.
    """
    async with recorded_run(request, open_cluster) as ongoing:
        program = RunningProgram(ongoing, replace(order, run=ongoing.recording.record.id))
        running, started = asyncio.create_task(program.run()), time.monotonic()
        try:
            status = await ongoing.attend(running)
        except asyncio.CancelledError as interrupted:
            await program.interrupt(*interrupted.args)
            raise
        except (HeadError, RunError):
            await program.end()
            raise
        finally:
            program.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        elapsed_s = time.monotonic() - started
        error = RunError(program.failed, traceback=()) if status else None
        # A shell says nothing of SIGPIPE, either.
        if error and status != -signal.SIGPIPE and not request.as_json:
            warn(program.failed)
        return ongoing.end_process(status, error, program.workers(), elapsed_s)


class RunningProgram:
    """A program, as its frontend has it: what it prints, what it is sent, how it ends."""

    def __init__(self, ongoing: OngoingRun, order: RunPrograms) -> None:
        self.failed = ""
        """How the first process that failed ended."""
        self._ongoing = ongoing
        self._connection = ongoing.connection
        self._order = order
        self._places: tuple[Place, ...] = ()
        self._running: set[str] = set()
        self._status = 0
        self._waits = ""
        """Why, in short, it has no GPUs yet."""
        self._arrived: asyncio.Queue[ProgramOutput | ProgramExited] = asyncio.Queue()
        self._outputs: dict[tuple[str, bool], Lines] = {}
        self._taken: dict[str, int] = {}
        self._input = Input(self._connection.send, f"{order.run}/0")
        self._over = asyncio.Event()
        self._restore: Callable[[], None] = lambda: None

    async def run(self) -> int:
        """Start it, and return the status of the first process that failed once all have ended."""
        self._connection.heard = self._heard
        self._ongoing.progressed(RunProgress(FINDING_GPUS, 0, 0))
        placed: Placed = await self._connection.request(self._order)
        self._places = placed.places
        await self._name_failed_hosts()
        self._ongoing.recorder.uuids = {uuid for each in placed.places for uuid in each.uuids}
        self._running = {each.program for each in placed.places}
        self._ongoing.progressed(RunProgress(RUNS, 0, 0))
        self._ongoing.quieten()
        if not (self._ongoing.recorder.uuids or self._ongoing.request.quiet):
            hosts = dict.fromkeys(each.host for each in placed.places)
            warn(f"{self._order.launch.argv[0]} runs without a GPU on {', '.join(hosts)}")
        self._ongoing.recording.note(
            *(f"{each.program.rpartition('/')[2]} on {_where(each)}" for each in placed.places)
        )
        if self._order.launch.rows:
            self._take_terminal()
        self._input.begin()
        while self._running:
            message = await self._arrived.get()
            if isinstance(message, ProgramExited):
                self._exited(message)
            else:
                await self._write(message)
        self._over.set()
        with contextlib.suppress(HeadError):  # its result is there, whatever becomes of the cluster
            await self._name_failed_hosts()
        return self._status

    async def _name_failed_hosts(self) -> None:
        """Say which hosts failed since they were named last."""
        told, settled = self._ongoing.settled, await self._connection.request(AwaitWorkers(0, 0))
        self._ongoing.settled = settled
        for host in settled.failed_hosts:
            if host.name not in {each.name for each in told.failed_hosts}:
                warn(f"{host.name}: {host.reason}")

    async def interrupt(self, name: str = signal.SIGINT.name) -> None:
        """Send a signal to all processes, and end those that go on for too long."""
        for program in self._running:
            self._connection.send(SignalProgram(program, signal.Signals[name]))
        await self._wait()
        await self.end()

    async def end(self) -> None:
        """End all processes at once, and give up the wait for GPUs."""
        if not self._over.is_set():
            self._connection.send(EndRun(self._order.run, 0.0))
            await self._wait()

    async def _wait(self) -> None:
        """Wait until all processes have ended, for a while."""
        if self._running:
            await within(GRACE_S, self._over.wait())

    def close(self) -> None:
        """Give back the terminal."""
        self._connection.heard = None
        self._restore()

    def workers(self) -> list[dict[str, Any]]:
        """Return the processes and their GPUs, as `--json` prints workers."""
        return [
            {
                "name": each.program.rpartition("/")[2],
                "host": each.host,
                "device": ",".join(each.gpus) or None,
                "uuid": ",".join(each.uuids) or None,
            }
            for each in self._places
        ]

    def _heard(self, message: ToFrontend) -> None:
        match message:
            case ProgramOutput() | ProgramExited():
                self._arrived.put_nowait(message)
            case BytesTaken(end=end):
                self._input.taken(end)
            case ProgramStarted(program) if program == f"{self._order.run}/0":
                self._input.again()
            case ProgramWaits(why=why) if (lines := why.splitlines())[0] != self._waits:
                self._waits = lines[0]
                self._ongoing.progressed(RunProgress(lines[0], 0, 0))
                if lines[1:] and not self._ongoing.request.quiet:
                    warn("\n".join(["who has GPUs, and who waits:", *lines[1:]]))

    async def _write(self, output: ProgramOutput) -> None:
        """Write a piece of output, in a thread: its reader may be slow."""
        data = unpacked(output.data)
        have, end = self._taken.get(output.program, 0), output.start + len(data)
        if output.start >= have:
            key = output.program, output.is_error
            lines = self._outputs.get(key) or self._outputs.setdefault(key, self._lines(*key))
            try:
                await asyncio.to_thread(lines.write, data)
            except OSError as error:
                self._unread(error)
            self._taken[output.program] = end
        self._connection.send(BytesTaken(output.program, max(have, end)))

    def _unread(self, error: OSError) -> None:
        """End all processes: their output cannot be written."""
        if not self._status:
            self._status, self.failed = 1, f"its output cannot be written: {error.strerror}"
            if isinstance(error, BrokenPipeError):
                self._status, self.failed = -signal.SIGPIPE, "nobody reads its output any more"
            self._connection.send(EndRun(self._order.run, GRACE_S))

    def _exited(self, exited: ProgramExited) -> None:
        self._running.discard(exited.program)
        for (program, _), lines in self._outputs.items():
            if program == exited.program:
                with contextlib.suppress(OSError):  # `_unread` said so
                    lines.finish()
        rank = exited.program.rpartition("/")[2]
        self._ongoing.recording.note(f"{rank} {exited.reason}")
        if exited.status and not self._status:
            self._status = exited.status
            place = next(each for each in self._places if each.program == exited.program)
            which = f"rank {rank}, " if len(self._places) > 1 else ""
            self.failed = f"{self._order.launch.argv[0]} ({which}{_where(place)}) {exited.reason}"

    def _lines(self, program: str, is_error: bool) -> "Lines":
        rank = program.rpartition("/")[2]
        name = f"{rank:>{len(str(len(self._places) - 1))}} | " if len(self._places) > 1 else ""
        to_stderr = is_error or self._ongoing.request.as_json
        note = self._ongoing.recording.note
        return Lines(
            (sys.stderr if to_stderr else sys.stdout).buffer,
            name.encode(),
            lambda lines: note(*(f"{rank} | {line}" for line in lines)),
        )

    def _take_terminal(self) -> None:
        """Have this terminal pass every key on, and tell the program its size."""
        before = termios.tcgetattr(0)
        tty.setraw(0)
        loop = asyncio.get_running_loop()

        def resized() -> None:
            columns, rows = os.get_terminal_size(0)
            self._connection.send(ResizeTerminal(f"{self._order.run}/0", rows, columns))

        def restore() -> None:
            loop.remove_signal_handler(signal.SIGWINCH)
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(0, termios.TCSADRAIN, before)

        loop.add_signal_handler(signal.SIGWINCH, resized)
        self._restore = restore


class Lines:
    """One output of one process, written as it came, or in whole lines with a name in front."""

    def __init__(self, target: Any, name: bytes, note: Callable[[list[str]], None]) -> None:
        self._target, self._name, self._note = target, name, note
        self._partial = bytearray()

    def write(self, data: bytes) -> None:
        """Write a piece; raises BrokenPipeError where nobody reads any more."""
        whole, newline, rest = data.rpartition(b"\n")
        self._partial += whole if newline else rest
        lines = list[bytes]()
        most = LONGEST_DRAWN_OVER if b"\r" in self._partial else LONGEST_LINE
        if newline or len(self._partial) > most:
            lines = bytes(self._partial).split(b"\n")
            self._partial = bytearray(rest if newline else b"")
        self._note([line.decode("utf-8", "replace") for line in lines])
        self._put(b"".join(self._name + line + b"\n" for line in lines) if self._name else data)

    def finish(self) -> None:
        """Write what has no end as a line."""
        if self._partial:
            self._note([self._partial.decode("utf-8", "replace")])
            self._put(self._name + self._partial + b"\n" if self._name else b"")

    def _put(self, data: bytes) -> None:
        self._target.write(data)
        self._target.flush()


class Input:
    """Stdin of this process, sent to a program in pieces, each after the one before was taken."""

    def __init__(self, send: Callable[[ProgramInput], None], program: str) -> None:
        self._send, self._program = send, program
        self._piece: ProgramInput | None = None
        """What was sent and not yet taken; the end of stdin, with no data, is never taken."""
        self._end = 0
        self._room = threading.Semaphore()

    def begin(self) -> None:
        """Begin to read, in a thread that ends with this process."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()

    def taken(self, end: int) -> None:
        """Read on once the piece was taken."""
        if self._piece and self._piece.data and end >= self._end:
            self._piece = None
            self._room.release()

    def again(self) -> None:
        """Send what was not taken: the program's host was not reached for a while."""
        if self._piece:
            self._send(self._piece)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        data = b"-"
        while data:
            self._room.acquire()
            try:
                select.select([0], [], [])  # somebody else may have made it non-blocking
                data = os.read(0, PIECE_BYTES)
            except (OSError, ValueError):  # stdin is closed, or this process is in the background
                data = b""
            with contextlib.suppress(RuntimeError):  # the loop has ended before
                loop.call_soon_threadsafe(self._sent, data)

    def _sent(self, data: bytes) -> None:
        self._piece = ProgramInput(self._program, self._end, packed(data))
        self._end += len(data)
        self._send(self._piece)


def _where(place: Place) -> str:
    """Return where a process runs, as workers are named."""
    return f"{place.host}:gpu{','.join(place.gpus)}" if place.gpus else place.host
