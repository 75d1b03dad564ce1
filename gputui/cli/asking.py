"""Ask SSH's questions at this terminal, in the event loop.

A thread that reads a terminal cannot be interrupted: ctrl+C would end nothing before enter.
"""

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Iterator

import click

from gputui.fleet.stages import Question

MOST_BYTES = 4096
"""Of a line: the kernel's own limit. Source: termios(3), canonical mode."""


async def ask_here(question: Question) -> str | None:
    """Ask the user at this terminal; None without a terminal, and where the answer is no.

    Raises click.Abort at the end of the input (ctrl+D).
    """
    if not sys.stdin.isatty():
        return None
    if question.kind == "host-key":
        answer = await read_line(f"{question.text} [y/N]: ")
        return "yes" if answer.strip().lower() in ("y", "yes") else None
    text = question.text.removesuffix(":")  # as servers end their own questions
    return await read_line(f"{text}: ", hidden=question.secret)


async def read_line(prompt: str, *, hidden: bool = False) -> str:
    """Return the next line of this terminal, which does not show it where it is hidden."""
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    readable = asyncio.Event()
    with _without_echo(terminal) if hidden else contextlib.nullcontext():
        click.echo(prompt, nl=False, err=True)
        loop.add_reader(terminal, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(terminal)
        line = os.read(terminal, MOST_BYTES)
    if hidden:
        click.echo(err=True)
    if not line:
        raise click.Abort
    return line.decode(errors="replace").removesuffix("\n")


@contextlib.contextmanager
def _without_echo(terminal: int) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    after = list(before)
    after[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, after)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
