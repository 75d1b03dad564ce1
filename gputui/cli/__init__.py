"""argv → a command; the border where every error becomes words on stderr and an exit code.

`gputui [HOSTS]` opens the screen, `--run` computes without one, and the other commands manage
clusters and runs. Nothing is imported before it is known to be needed: help and usage errors
come at once.
"""

import codecs
import errno
import io
import os
import select
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from gputui.errors import ExitCode, GputuiError, UsageError
from gputui.model.plain_text import safe_lines
from gputui.process.search_path import ignore_working_directory

__all__ = ["main"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How a write to a file may fail."""
MOST_SAID = 10_000
"""Characters of an error; the record of a run has all of them."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit; `argv` is without the program's name.

    Python's own finalization is skipped: it takes 0.1 s once Dask is imported, and blocks while
    threads run.
    """
    ignore_working_directory()
    _open_streams()
    try:
        status = run_command(list(sys.argv[1:] if argv is None else argv))
    except Exception:
        traceback.print_exc()
        status = ExitCode.COMPUTATION_FAILED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(status)
    except OSError as error:
        os._exit(status or _unwritten(error))
    except ValueError:  # a stream was closed on the way
        pass
    os._exit(status)


def run_command(argv: list[str]) -> int:
    """Run a command and return its exit code."""
    import click

    from gputui.cli.commands import gputui

    before, after = _split_at_dashes(argv)
    try:
        _check_folder()
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
        print(f"gputui: {_cut(safe_lines(str(error)))}", file=sys.stderr)
        return int(error.exit_code)
    except ValueError as error:
        if not str(error).startswith("A dask config file at "):
            raise
        from gputui.settings import malformed

        print(f"gputui: {safe_lines(str(malformed(error)))}", file=sys.stderr)
        return int(ExitCode.WRONG_USAGE)
    except SystemExit:
        if _is_read():
            raise
        return int(ExitCode.DONE)  # click exits with 1 where nobody reads on, as below `head`
    except OSError as error:
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        return _unwritten(error)


def _cut(text: str) -> str:
    """Return a text that a terminal can show: an error may hold all of an array.

    >>> _cut("short"), len(_cut("x" * 10**6)) < 2 * MOST_SAID
    ('short', True)
    """
    if len(text) <= MOST_SAID:
        return text
    return f"{text[:MOST_SAID]} … ({len(text):,} characters)"


def _is_read() -> bool:
    """Return whether stdout still has a reader."""
    poll = select.poll()
    poll.register(1, 0)
    return not poll.poll(0)


def _check_folder() -> None:
    """Raise UsageError where the working directory is gone: no path would mean anything."""
    try:
        Path.cwd()
    except OSError as error:
        raise UsageError(f"the folder you are in: {error.strerror}; cd to another one") from error


def _unwritten(error: OSError) -> int:
    """Report that stdout could not be written, and return the exit code."""
    print(f"gputui: standard output: {error.strerror}", file=sys.stderr)
    return int(ExitCode.COMPUTATION_FAILED)


def _open_streams() -> None:
    """Open the standard streams that the parent process closed, and write to all of them."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest descriptor that is free
            setattr(sys, name, os.fdopen(descriptor, mode))
    codecs.register_error("gputui", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="gputui")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream's encoding lacks by ASCII."""
    from gputui.tui.rendering.format import to_ascii

    if not isinstance(error, UnicodeEncodeError):
        raise error
    return to_ascii(error.object[error.start : error.end]), error.end


def _split_at_dashes(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Split the arguments at `--`; those after it belong to a script.

    >>> _split_at_dashes(["a", "--run", "x.py", "--", "-v"])
    (['a', '--run', 'x.py'], ['-v'])
    """
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]
