"""`python -m gputui.head`: reads its configuration, one JSON line, on stdin; then runs a cluster.

On stdout it says `Opened` or `Refused`, once; after that its output goes to its log file. It
runs in a session of its own, and lives as long as its starter's end of stdin, or until it is
told to stop.
"""

import asyncio
import io
import logging
import os
import signal
from pathlib import Path

from gputui.errors import GputuiError
from gputui.head.head import Head
from gputui.protocol import VERSION
from gputui.protocol.codec import decode, encode
from gputui.protocol.shared import Refused
from gputui.protocol.starter import ConfigureHead, Opened
from gputui.snapshot import Severity

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Run one cluster; returns the exit status."""
    try:
        config = decode(io.FileIO(0, closefd=False).readline(), ConfigureHead)
        if config.version != VERSION:
            raise GputuiError(f"the first line must be a ConfigureHead of version {VERSION}")
        return asyncio.run(_run(config))
    except GputuiError as error:
        _say(Refused(0, str(error)))
        return int(error.exit_code)


async def _run(config: ConfigureHead) -> int:
    head = Head(config)
    try:
        _log_to(log_folder() / f"{head.name}.log")
    except OSError as error:  # a cluster is worth more than its log
        head.tell(Severity.WARNING, "cluster", "unlogged", f"the head writes no log: {error}")
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, head.stop, f"the head was sent {number.name}")
    if not config.stays:
        loop.add_reader(0, _heard_starter, head)
    await head.run(lambda socket: _say(Opened(socket)))
    return 0


def _heard_starter(head: Head) -> None:
    """Stop with the starter: its end of stdin closes, whatever happens to it."""
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        head.stop("whoever started it is gone")


def _say(message: Opened | Refused) -> None:
    """Tell the starter, then let go of its stdout and stderr: the log takes their place."""
    os.write(1, encode(message))
    os.dup2(_log_descriptor(), 1)
    os.dup2(1, 2)


def log_folder() -> Path:
    """Return where heads keep their logs, in the user's state folder; made where it is not."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(state).expanduser() / "gputui" / "log"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _log_to(path: Path) -> None:
    """Log to a file that only this user can read; the one before is kept as `.1`."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))
    path.touch(mode=0o600)
    logging.basicConfig(
        filename=path,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("asyncssh").setLevel(logging.WARNING)


def _log_descriptor() -> int:
    """Return the descriptor of the log file, or of /dev/null."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler) and handler.stream is not None:
            return handler.stream.fileno()
    return os.open(os.devnull, os.O_WRONLY)


if __name__ == "__main__":
    os._exit(main())
