"""argv → a command; the border where every error becomes words on stderr and an exit code.

`gputui [HOSTS]` opens the screen, `--run` computes without one, and the other commands manage
clusters and runs. Nothing is imported before it is known to be needed: help and usage errors
come at once.
"""

import codecs
import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from gputui.errors import ExitCode, GputuiError, UsageError
from gputui.model.plain_text import safe_lines
from gputui.process.lifetime import look_rarely
from gputui.process.search_path import ignore_working_directory

if TYPE_CHECKING:
    from gputui.client.head_process import HeadProcess

__all__ = ["main"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How a write to a file may fail."""
MOST_SAID = 10_000
"""Characters of an error, which may hold all of an array; a run's record has all of them."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit; `argv` is without the program's name.

    Python's own finalization is skipped: it takes 0.1 s once Dask is imported, and blocks while
    threads run.
    """
    ignore_working_directory()
    look_rarely()  # imports leave little behind that is worth looking for
    _open_streams()
    try:
        status = run_command(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        print("gputui: interrupted", file=sys.stderr)
        status = ExitCode.INTERRUPTED
    except Exception:
        import traceback

        traceback.print_exc()
        status = ExitCode.COMPUTATION_FAILED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(status)
    except OSError as error:
        os._exit(status or _unwritten(error))
    os._exit(status)


class Typed(NamedTuple):
    """What a command is given besides its options."""

    script_arguments: tuple[str, ...]
    head: "HeadProcess | None"
    """One that has begun for its run."""


def run_command(argv: list[str]) -> int:
    """Run a command and return its exit code."""
    before, after = _split_at_dashes(argv)
    with _begun_head(before) as head:
        return _run_command(before, Typed(tuple(after), head))


def _begun_head(words: Sequence[str]) -> "AbstractContextManager[HeadProcess | None]":
    """Begin the head of a run, which starts while all else is imported.

    A preset in a file adds its folder to where workers look for modules, before a head starts.
    """
    options = {word.partition("=")[0] for word in words}
    later = "--attach" in options or any(".py:" in word for word in words)
    if later or options.isdisjoint(("--run", "--exec")):
        return nullcontext()
    from gputui.client.head_process import begun_head

    return begun_head()


def _run_command(words: list[str], typed: Typed) -> int:
    import click

    from gputui.cli.commands import gputui

    try:
        try:
            os.getcwd()  # noqa: PTH109 - else no path would mean anything; pathlib is slow to come
        except OSError as error:
            hint = "cd to another one"
            raise UsageError(f"the folder you are in: {error.strerror}; {hint}") from error
        result = gputui.main(words, prog_name="gputui", standalone_mode=False, obj=typed)
        return int(result or ExitCode.DONE)
    except click.ClickException as error:
        error.show()
        return int(ExitCode.WRONG_USAGE)
    except click.Abort:  # click's own name for it
        raise KeyboardInterrupt from None
    except GputuiError as error:
        text = str(error)
        more = f" … ({len(text):,} characters)" if len(text) > MOST_SAID else ""
        print(f"gputui: {safe_lines(text[:MOST_SAID])}{more}", file=sys.stderr)
        return int(error.exit_code)
    except ValueError as error:
        if not str(error).startswith("A dask config file at "):
            raise
        from gputui.settings import malformed

        print(f"gputui: {safe_lines(str(malformed(error)))}", file=sys.stderr)
        return int(ExitCode.WRONG_USAGE)
    except OSError as error:
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        return _unwritten(error)


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
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if isinstance(stream.buffer, io.FileIO):  # unbuffered, it loses what a signal cuts off
            words, raw = (stream.encoding, stream.errors), stream.detach()
            stream = io.TextIOWrapper(io.BufferedWriter(raw), *words, line_buffering=True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # which Textual writes to
        if codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="gputui")


def _in_ascii(error: Any) -> tuple[str, int]:
    """Replace characters that a stream's encoding lacks by ASCII."""
    from gputui.tui.rendering.format import to_ascii

    return to_ascii(error.object[error.start : error.end]), error.end


def _split_at_dashes(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at `--`; those after it belong to a script.

    >>> _split_at_dashes(["a", "--run", "x.py", "--", "-v"])
    (['a', '--run', 'x.py'], ['-v'])
    """
    at = [*argv, "--"].index("--")
    return argv[:at], argv[at + 1 :]
