"""Programs, from a frontend to the agent that runs them and back: both channels carry these.

Output and input are numbered by bytes. A sender waits once `WINDOW_BYTES` of its are not yet taken,
so a program that prints faster than its reader reads waits, as behind a pipe; what was not taken
is sent again to a head that connects again.
"""

import shlex
from base64 import b64decode, b64encode
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from gputui.model.bounds import (
    Bytes,
    Devices,
    Document,
    ExitStatus,
    Line,
    Many,
    Name,
    Number,
    Options,
    Pid,
    Seconds,
    SmallNumber,
    Text,
)
from gputui.model.frozen import frozen
from gputui.model.readings import Wanted
from gputui.protocol.shared import Delivery, Numbered

PROGRAM = "exec:"
"""How the name of a program's run begins."""
FINDING_GPUS, HOSTS_COME_UP, RUNS = "waiting for GPUs", "the hosts come up", "running"
"""Stages of a program's run: until its head has found GPUs or says why it waits, and at last."""

WINDOW_BYTES = 2**19
PIECE_BYTES = 2**16


class Per(StrEnum):
    """How many processes a program is."""

    GPU = "gpu"
    HOST = "host"
    """One on each host that gives any GPU."""
    ONCE = "once"
    """One, with all its GPUs on one host."""


@frozen
class Launch:
    """How to start a process."""

    argv: Many[Document]
    cwd: Line
    env: Options = ()
    """On top of the host's own environment."""
    cwd_optional: bool = False
    """Whether to start in the home folder where the host has no such folder."""
    has_input: bool = False
    """Whether `ProgramInput` follows; else its stdin is empty."""
    rows: SmallNumber = 0
    """The size of the terminal that it gets; 0 for none."""
    columns: SmallNumber = 0


@frozen
class RunPrograms(Numbered):
    """Start a program on GPUs that are free, all its processes or none; answered by `Placed`.

    On hosts without GPUs it takes `workers=` places of each, 1 by default.
    """

    run: Name
    """The id of its run: a process is `run/rank`."""
    launch: Launch
    """Of each process, with input for rank 0 only; in its arguments `{rank}` and the like are
    replaced (`gputui.fleet.ranks`)."""
    wanted: Wanted
    per: Per
    send: Line = ""
    """A folder of the head's machine to start in a copy of, in place of its own."""
    pin_uuid: bool = False
    """Whether CUDA_VISIBLE_DEVICES names UUIDs where indices would do."""


@frozen
class Place:
    """Where a process of a program runs, and on what."""

    program: Name
    host: Name
    gpus: Devices[Name]
    """Labels, as in worker names."""
    uuids: Devices[Name]


@frozen
class Placed(Numbered):
    """A program has started, all its processes, in the order of their ranks."""

    places: Many[Place]


@frozen
class EndRun:
    """End all processes of a run: SIGTERM first, SIGKILL after the grace."""

    run: Name
    grace_s: Seconds


@frozen
class ProgramWaits:
    """Why a program has not started yet."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    why: Text


@frozen
class SendFolder(Numbered):
    """Keep a piece of a packed folder for a run, which begins at this byte; none unpacks it.

    The folder goes with the run's last program on the host.
    """

    run: Name
    start: Number
    data: Document
    """In base64."""


@frozen
class FolderTaken(Numbered):
    """The piece was kept, or the whole unpacked, unless for an error."""

    error: Text = ""


@frozen
class StartProgram:
    """Start a program; one that runs already under this name is left alone."""

    program: Name
    launch: Launch
    sent: bool = False
    """Whether to start in the folder that was sent for its run, in place of its own."""
    memory_limit_bytes: Bytes = 0
    """Of it with all that it started; 0 for none."""


@frozen
class ProgramInput:
    """Bytes for a program's stdin, which begin at this one; none for its end."""

    program: Name
    start: Number
    data: Document
    """In base64."""


@frozen
class BytesTaken:
    """All output of a program, or all input for it, before this byte was taken."""

    program: Name
    end: Number


@frozen
class SignalProgram:
    """Send a signal to a program and its process group."""

    program: Name
    signal: SmallNumber


@frozen
class ResizeTerminal:
    """Change the size of a program's terminal."""

    program: Name
    rows: SmallNumber
    columns: SmallNumber


@frozen
class EndPrograms:
    """End these and all that they started: SIGTERM first, SIGKILL after the grace."""

    programs: Many[Name]
    grace_s: Seconds


ToProgram = ProgramInput | BytesTaken | SignalProgram | ResizeTerminal
"""What a frontend sends to a program, through its head."""


@frozen
class ProgramStarted:
    """A program has a process."""

    program: Name
    pid: Pid


@frozen
class ProgramOutput:
    """Bytes that a program wrote, which begin at this one of all that it wrote."""

    program: Name
    start: Number
    data: Document
    """In base64."""
    is_error: bool
    """Whether it wrote them to stderr."""


@frozen
class ProgramExited:
    """A program has ended, and all that it started; its output came before."""

    program: Name
    status: ExitStatus
    """As of `subprocess`: negative for a signal."""
    reason: Text
    """How it ended, or why it could not start."""


FromProgram = ProgramStarted | ProgramOutput | BytesTaken | ProgramExited
"""What comes from a program, through its head."""


def packed(data: bytes) -> str:
    """Return bytes as a message carries them."""
    return b64encode(data).decode()


def unpacked(data: str) -> bytes:
    """Return the bytes that a message carries; b"" for what is no base64."""
    try:
        return b64decode(data, validate=True)
    except ValueError:
        return b""


def run_name(program: str) -> str:
    """Return the name of a program's run.

    >>> run_name("/usr/bin/torchrun")
    'exec:torchrun'
    """
    return f"{PROGRAM}{program.rpartition('/')[2]}"


def is_program(name: str) -> bool:
    """Return whether a run's name is that of a program, as `--exec` runs it."""
    return name.startswith(PROGRAM)


def exec_words(parameters: Iterable[tuple[str, str]]) -> list[str]:
    """Return the words of a command that the parameters of a program's run stand for.

    >>> exec_words((("gpus", "2"), ("arguments", "echo 'a b'")))
    ['--exec', '--gpus=2', '--', 'echo', 'a b']
    """
    typed = dict(parameters)
    argv = shlex.split(typed.pop("arguments", ""))
    return ["--exec", *(f"--{key}={value}" for key, value in typed.items()), "--", *argv]
