"""Questions to the user at the terminal, for commands without a screen."""

import asyncio
import getpass
import sys

from gputui.fleet.stages import Ask, Question


def terminal_ask() -> Ask:
    """Return a function that asks at the terminal, one question at a time; None without one."""
    turns = asyncio.Lock()

    async def ask(question: Question) -> str | None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        async with turns:
            return await asyncio.to_thread(_read, question)

    return ask


def _read(question: Question) -> str | None:
    """Ask on stderr; None at the end of the input."""
    try:
        if question.secret:
            return getpass.getpass(f"{question.text}: ", sys.stderr)
        choice = " (yes/no) " if question.kind == "host-key" else ": "
        print(question.text, end=choice, file=sys.stderr, flush=True)
        return sys.stdin.readline().strip() or None
    except EOFError:
        return None
