"""The unnamed command: the screen, a run or a program."""

from typing import Any

import click

from gputui.cli.options import NO_SCRIPT, written_options
from gputui.errors import UsageError


def open_(ctx: click.Context, /, **options: Any) -> int | None:
    """Open the screen on HOSTS, or compute without one."""
    given = written_options(ctx)
    if options["preset"] is None and not options["is_program"]:
        if ctx.obj.script_arguments:
            raise UsageError(NO_SCRIPT)
        from gputui.cli.screen import open_screen

        return open_screen(given, options)
    from gputui.cli.headless import run_headless

    options["head"] = ctx.obj.head
    return run_headless(ctx.obj.script_arguments, given, options)
