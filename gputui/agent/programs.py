"""Programs: the processes that this agent starts for a user, other than Dask's.

Each has a parent (`program_parent`) that ends all it started. Its output is read as far as the
reader at the other end has taken it, so a program waits for a slow reader, and nothing piles up.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys
import tarfile
import termios
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gputui.agent.agent_socket import own_command
from gputui.agent.program_parent import END, NOT_RUN
from gputui.agent.worker_process import sized
from gputui.folders import remove_folder
from gputui.process import procfs
from gputui.process.background import Background, within, words
from gputui.process.child import KILLED_S, Child, ending
from gputui.process.lifetime import start_problem
from gputui.protocol.programs import (
    PIECE_BYTES,
    WINDOW_BYTES,
    BytesTaken,
    EndPrograms,
    FolderTaken,
    FromProgram,
    Launch,
    ProgramExited,
    ProgramInput,
    ProgramOutput,
    ProgramStarted,
    ResizeTerminal,
    SendFolder,
    SignalProgram,
    StartProgram,
    ToProgram,
    packed,
    unpacked,
)

HOST_WINDOW_BYTES = 2**22
"""What all programs may have printed that was not taken: a channel has room to send it again."""
DRAINED_S = 0.2
"""How long the output of an ended program may stay open: all that could write to it was ended."""


class Programs:
    """All programs of a host, by name."""

    def __init__(
        self, environ: Mapping[str, str], scratch: Path, send: Callable[[FromProgram], None]
    ) -> None:
        self._scratch = scratch
        self._unpacking = asyncio.Lock()
        path = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
        self._environ = {**environ, "PATH": path, "PYTHONUNBUFFERED": "1"}
        """The host's, as a program expects it: its own Python leads PATH."""
        self._send = send
        self._programs: dict[str, Program] = {}
        self._tasks = Background(
            lambda program, error: send(ProgramExited(program, NOT_RUN, words(error)))
        )

    def start(self, order: StartProgram) -> None:
        """Start a program, unless one has that name."""
        if order.program in self._programs:
            return
        if order.sent:
            cwd = str(self._sent(_run(order.program)))
            order = replace(order, launch=replace(order.launch, cwd=cwd))
        program = Program(order, self._environ, self._send, self._window)
        self._programs[order.program] = program
        if child := program.start():
            self._tasks.start(program.attend(child), order.program)

    async def take_folder(self, order: SendFolder) -> FolderTaken:
        """Keep a piece of a folder for a run's programs, and unpack the whole after the last."""
        async with self._unpacking:
            try:
                await asyncio.to_thread(_keep_piece, self._sent(order.run), order)
            except (OSError, EOFError, tarfile.TarError) as error:
                return FolderTaken(order.request, str(error))
        return FolderTaken(order.request)

    def take(self, message: ToProgram) -> None:
        """Handle a message for one program; one that is gone needs nothing."""
        if (program := self._programs.get(message.program)) is None:
            return
        match message:
            case ProgramInput():
                program.feed(message)
            case BytesTaken(end=end):
                program.taken(end)
            case SignalProgram(signal=number):
                program.signal(number)
            case ResizeTerminal(rows=rows, columns=columns):
                program.resize(rows, columns)

    async def end(self, order: EndPrograms) -> None:
        """End programs and forget them: nobody waits for their output any more."""
        ended = [each for name in order.programs if (each := self._programs.get(name))]
        await asyncio.gather(*(each.end(order.grace_s) for each in ended))
        for name in order.programs:
            self._programs.pop(name, None)
        for run in {*map(_run, order.programs)} - {*map(_run, self._programs)}:
            async with self._unpacking:
                await asyncio.to_thread(remove_folder, self._sent(run))

    def pids(self) -> list[int]:
        """Return the pids of the programs' parents that run."""
        return [each.pid for each in self._programs.values() if each.pid is not None]

    def tell(self) -> None:
        """Send again what a head has not taken, to one that has just connected."""
        for program in self._programs.values():
            program.tell()

    async def keep_limits(self) -> None:
        """End the programs that have come up to their memory limit."""
        for program in [*self._programs.values()]:
            await program.keep_limit()

    async def close(self, grace_s: float = 0.0) -> None:
        """End all programs."""
        await self.end(EndPrograms(tuple(self._programs), grace_s))
        await self._tasks.close()

    def _sent(self, run: str) -> Path:
        """Return where the folder that was sent for a run is; it goes with its last program."""
        return self._scratch / f"sent-{run}"

    def _window(self) -> int:
        """Return how many bytes of each program's output may be untaken."""
        return min(WINDOW_BYTES, HOST_WINDOW_BYTES // len(self._programs))


class Program:
    """One program, from its start until it is ended."""

    def __init__(
        self,
        order: StartProgram,
        environ: Mapping[str, str],
        send: Callable[[FromProgram], None],
        window: Callable[[], int],
    ) -> None:
        self._order = order
        self._window = window
        self._environ = {**environ, **dict(order.launch.env)}
        self._send = send
        self._child: Child | None = None
        self._started: ProgramStarted | None = None
        self._exited: ProgramExited | None = None
        self._untaken: deque[ProgramOutput] = deque()
        self._written = self._taken = 0
        self._reading: dict[int, bool] = {}
        """Descriptors of its output, each with whether it is stderr."""
        self._waits = False
        """Whether nothing is read until output was taken."""
        self._drained = asyncio.Event()
        self._input: int | None = None
        self._unfed = bytearray()
        self._fed = self._received = 0
        self._input_ends = False
        self._over_limit = False

    @property
    def pid(self) -> int | None:
        """The pid of its parent, None where it has not started or has ended."""
        return self._child.pid if self._child and self._child.status is None else None

    async def keep_limit(self) -> None:
        """End it where it holds more memory than its limit, with all that it started."""
        pid, limit = self.pid, self._order.memory_limit_bytes
        if pid and limit and await asyncio.to_thread(_reaches, pid, limit):
            self._over_limit = True
            self._kill()

    @property
    def _room(self) -> int:
        """How many bytes may be read before output is taken."""
        return self._window() - (self._written - self._taken)

    def start(self) -> Child | None:
        """Start it; None where it could not be, which is reported as its end."""
        try:
            self._child = self._start()
        except (OSError, RuntimeError) as error:
            self._close()
            self._exit(NOT_RUN, f"could not be started: {start_problem(error)}")
            return None
        self._started = ProgramStarted(self._order.program, self._child.pid)
        self._send(self._started)
        return self._child

    async def attend(self, child: Child) -> None:
        """Report its end when all its output was sent."""
        status = await child.wait()
        assert status is not None
        await self._drain()
        self._close()
        limit = sized(self._order.memory_limit_bytes)
        over = f"reached its memory limit of {limit} there; give it more with memory="
        self._exit(status, over if self._over_limit else ending(status))

    def feed(self, message: ProgramInput) -> None:
        """Write input to it as it takes it; what came before is left out."""
        if self._input is None or message.start > self._received:
            return
        data = unpacked(message.data)
        self._input_ends |= not message.data
        self._unfed += data[self._received - message.start :]
        self._received = max(self._received, message.start + len(data))
        asyncio.get_running_loop().add_writer(self._input, self._write)

    def taken(self, end: int) -> None:
        """Read on, now that output before this byte was taken."""
        self._taken = max(self._taken, end)
        while self._untaken and self._untaken[0].start < self._taken:
            self._untaken.popleft()
        if self._waits and self._room > 0:
            self._waits = False
            for descriptor in self._reading:
                asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    def signal(self, number: int) -> None:
        """Send a signal to its process group; an unknown one is left out."""
        with contextlib.suppress(ValueError):
            if (what := signal.Signals(number)) is signal.SIGKILL:
                self._kill()
            elif self._child is not None:
                self._child.send_signal(what)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal, where it has one."""
        if self._order.launch.rows and self._input is not None:
            _set_size(self._input, rows, columns)

    async def end(self, grace_s: float) -> None:
        """Ask it to end, and kill it and all that it started after the grace."""
        if self._child is not None:
            if grace_s:
                self._child.send_signal(signal.SIGTERM)
            if await self._child.wait(grace_s) is None:
                self._kill()
            await self._child.end(KILLED_S, ask=None)
        self._close()

    def _kill(self) -> None:
        """Have its parent, whose pid is its own until it is reaped, end all that it started."""
        if self.pid is not None:
            os.kill(self.pid, END)

    def tell(self) -> None:
        """Send again what was not taken."""
        for message in (self._started, *self._untaken, self._exited):
            if message is not None:
                self._send(message)

    def _start(self) -> Child:
        """Start its parent, with pipes or a terminal; raises OSError."""
        launch = self._order.launch
        cwd = _folder(launch)
        how = "terminal" if launch.rows else "pipes"
        theirs = [os.open(os.devnull, os.O_RDONLY)]
        try:
            if launch.rows:
                self._input, slave = os.openpty()
                _set_size(self._input, launch.rows, launch.columns)
                theirs += [slave, slave, slave]
                self._reading = {os.dup(self._input): False}
            else:
                out, stdout = os.pipe()
                error, stderr = os.pipe()
                self._reading = {out: False, error: True}
                theirs += [theirs[0], stdout, stderr]
                if launch.has_input:
                    theirs[1], self._input = os.pipe()
            parent = own_command("-S")  # it needs nothing that is installed
            return Child(
                [*parent, "program", str(os.getpid()), how, *launch.argv],
                env={**self._environ, "PWD": cwd},
                stdin=theirs[1],
                stdout=theirs[2],
                stderr=theirs[3],
                own_session=True,
                cwd=cwd,
            )
        finally:
            for descriptor in {*theirs}:
                os.close(descriptor)
            if self._input is not None:
                os.set_blocking(self._input, False)
            for descriptor in self._reading:
                os.set_blocking(descriptor, False)
                asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    async def _drain(self) -> None:
        """Send the last output; a process that the kernel cannot end holds nothing up."""
        while self._reading:
            before = self._written
            await within(DRAINED_S, self._drained.wait())
            if not self._waits and self._written == before and not self._drained.is_set():
                return
            self._drained.clear()

    def _read(self, descriptor: int) -> None:
        """Read a piece of its output and send it."""
        if self._room <= 0:
            self._waits = True
            for each in self._reading:
                asyncio.get_running_loop().remove_reader(each)
            return
        try:
            data = os.read(descriptor, min(PIECE_BYTES, self._room))
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if not data:
            self._reading.pop(descriptor)
            _close(descriptor)
            self._drained.set()
            return
        is_error = self._reading[descriptor]
        piece = ProgramOutput(self._order.program, self._written, packed(data), is_error)
        self._written += len(data)
        self._untaken.append(piece)
        self._send(piece)

    def _write(self) -> None:
        """Write what has come for its stdin, and close it at the end."""
        assert self._input is not None
        try:
            count = os.write(self._input, self._unfed) if self._unfed else 0
        except BlockingIOError:
            return
        except OSError:  # it reads no more: the rest is for nobody
            count, self._input_ends = len(self._unfed), True
        del self._unfed[:count]
        self._fed += count
        self._send(BytesTaken(self._order.program, self._fed))
        if not self._unfed:
            asyncio.get_running_loop().remove_writer(self._input)
            if self._input_ends:
                self._close_input()

    def _exit(self, status: int, reason: str) -> None:
        self._exited = ProgramExited(self._order.program, status, reason)
        self._send(self._exited)

    def _close(self) -> None:
        """Close what is open towards it."""
        for descriptor in self._reading:
            _close(descriptor)
        self._reading = {}
        self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            _close(self._input)
            self._input = None


def _run(program: str) -> str:
    return program.rpartition("/")[0]


def _keep_piece(folder: Path, order: SendFolder) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    packed = folder / f"{order.run}.tar.gz"
    if order.data:
        with packed.open("ab" if order.start else "wb") as file:
            file.write(unpacked(order.data))
        return
    with tarfile.open(packed) as archive:
        packed.unlink()
        # As it was: links that lead out of the folder, too. Before 3.11.4 none is wanted.
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(folder)


def _close(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    loop.remove_reader(descriptor)
    loop.remove_writer(descriptor)
    os.close(descriptor)


def _folder(launch: Launch) -> str:
    """Return the folder to start a program in; raises OSError where the host has none."""
    folder = os.path.expanduser(launch.cwd)  # noqa: PTH111 - pathlib's raises for an unknown user
    if os.access(folder, os.X_OK) and Path(folder).is_dir():
        return folder
    if not launch.cwd_optional:
        why = "no such folder there, or not for this user"
        raise NotADirectoryError(errno.ENOTDIR, why, launch.cwd)
    return str(Path.home())


def _reaches(pid: int, limit: int) -> bool:
    """Return whether a process and all below it hold so many bytes, what they share once."""
    pids = procfs.with_descendants(pid)
    resident = sum(stat.rss_bytes for each in pids if (stat := procfs.process_stat(each)))
    return resident >= limit and sum(map(procfs.proportional_bytes, pids)) >= limit


def _set_size(terminal: int, rows: int, columns: int) -> None:
    size = struct.pack("HHHH", min(rows, 2**15), min(columns, 2**15), 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
