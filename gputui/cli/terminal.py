"""The terminal of a command: its signals, and SSH's questions to the person at it.

SIGINT, SIGTERM and SIGHUP end a command in order: cancelled first, then cleaned up. One that is
ignored from the start, as by nohup, stays so. Questions are asked in the event loop: a thread that
reads a terminal cannot be interrupted, so ctrl+C would end nothing before enter.
"""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar

import click

from gputui.process.lifetime import END_SIGNALS

if TYPE_CHECKING:
    from gputui.fleet.stages import Question

Result = TypeVar("Result")

MOST_BYTES = 4096
"""Of a line: the kernel's own limit. Source: termios(3), canonical mode."""


def interrupt_on_signals() -> None:
    """Have each of the signals raise KeyboardInterrupt as long as no work has begun."""
    for each in END_SIGNALS:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, signal.default_int_handler)


def ignore_signals() -> None:
    """Ignore the signals from now on: the rest takes no time.

    Called in the event loop, which would else give them back their old meaning as it closes.
    """
    for each in END_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(each)
        signal.signal(each, signal.SIG_IGN)


def run_until_interrupted(work: Coroutine[object, object, Result]) -> Result:
    """Run to the end and return its result.

    One of the signals cancels the work, with the signal's name, and raises KeyboardInterrupt once
    the work has cleaned up; a second signal meanwhile changes nothing.
    """

    async def guarded() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

        def interrupt(number: signal.Signals) -> None:
            if not task.cancelling():
                task.cancel(number.name)

        for each in END_SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:
                loop.add_signal_handler(each, interrupt, each)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def ask_here(question: "Question") -> str | None:
    """Ask the user at this terminal; None without a terminal, and where the answer is no.

    Raises click.Abort at the end of the input (ctrl+D).
    """
    if not sys.stdin.isatty():
        return None
    if question.kind == "host-key":
        answer = await _read_line(f"{question.text} [y/N]: ", hidden=False)
        return "yes" if answer.strip().lower() in ("y", "yes") else None
    text = question.text.removesuffix(":")  # as servers end their own questions
    return await _read_line(f"{text}: ", hidden=question.secret)


async def _read_line(prompt: str, *, hidden: bool) -> str:
    """Return the next line of this terminal, which does not show it where it is hidden."""
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    readable = asyncio.Event()
    before = termios.tcgetattr(terminal)
    quiet = before.copy()
    quiet[3] &= ~termios.ECHO
    if hidden:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, quiet)
    try:
        click.echo(prompt, nl=False, err=True)
        loop.add_reader(terminal, readable.set)
        await readable.wait()
        line = os.read(terminal, MOST_BYTES)
    finally:
        loop.remove_reader(terminal)
        if hidden:
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
            click.echo(err=True)
    if not line:
        raise click.Abort
    return line.decode(errors="replace").removesuffix("\n")
