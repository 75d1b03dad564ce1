"""argv → a command; the border where every error becomes words on stderr and an exit code.

`gputui [HOSTS]` opens the screen, `--run` computes without one, and the other commands manage
clusters and runs. Nothing is imported before it is known to be needed: help and usage errors
come at once.
"""

import os
import sys
from collections.abc import Sequence

from gputui.errors import ExitCode, GputuiError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit; `argv` is without the program's name.

    All is over then, and Python is spared its own tidying up, a tenth of a second after Dask.
    """
    status = run_command(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)
    os._exit(status)


def run_command(argv: list[str]) -> int:
    """Run a command and return its exit code."""
    import click

    from gputui.cli.commands import gputui

    before, after = _split_at_dashes(argv)
    try:
        result = gputui.main(
            before, prog_name="gputui", standalone_mode=False, obj=tuple(after or ())
        )
        return int(result or ExitCode.DONE)
    except click.ClickException as error:
        error.show()
        return int(ExitCode.WRONG_USAGE)
    except (KeyboardInterrupt, click.Abort):
        print("gputui: interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except GputuiError as error:
        print(f"gputui: {error}", file=sys.stderr)
        return int(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.DONE)


def _split_at_dashes(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Return what stands before and after `--`; what follows belongs to a script.

    >>> _split_at_dashes(["a", "--run", "x.py", "--", "-v"])
    (['a', '--run', 'x.py'], ['-v'])
    """
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]
