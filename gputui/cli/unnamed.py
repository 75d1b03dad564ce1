"""The unnamed command: a head starts while all else is imported that a run needs.

Import nothing here that would delay the head.
"""

from contextlib import nullcontext
from typing import Any

import click

from gputui.cli.options import NO_SCRIPT, written_options
from gputui.client.head_process import begun_head
from gputui.errors import UsageError


def open_(ctx: click.Context, /, **options: Any) -> int | None:
    """Open the screen on HOSTS, or compute without one."""
    given = written_options(ctx)
    if options["preset"] is None and not options["is_program"]:
        if ctx.obj:
            raise UsageError(NO_SCRIPT)
        from gputui.cli.screen import open_screen

        return open_screen(given, options)
    # A preset in a file adds its folder to where workers look for modules.
    later = options["attach"] or ".py:" in (options["preset"] or "")
    with nullcontext() if later else begun_head() as options["head"]:
        from gputui.cli.headless import run_headless

        return run_headless(ctx.obj, given, options)
