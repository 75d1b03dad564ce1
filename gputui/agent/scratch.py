"""The scratch folder of an agent: whose it is, the agent's log in it, and those that were left."""

import asyncio
import contextlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gputui.folders import SCRATCH_PREFIX, read_own_file, write_whole
from gputui.process.procfs import own_machine, own_place, process_stat

OWNER = "owner.json"


def own_scratch(scratch: Path) -> None:
    """Note in the folder that it is this process's, for `sweep_scratch`.

    A folder without a note is never swept: the disk is full, or /proc is not of this namespace.
    """
    pid = os.getpid()
    with contextlib.suppress(OSError):
        if (stat := process_stat(pid)) is not None:
            owner = {**asdict(own_place()), "machine": own_machine()}
            owner |= {"pid": pid, "ticks": stat.start_ticks}
            write_whole(scratch / OWNER, json.dumps(owner).encode())


def sweep_scratch(parent: Path) -> None:
    """Remove the folders of this user's agents that are gone: killed, or when the power was.

    What workers spilled lies there. Folders that may be of another machine's agents, or of another
    container's, are left alone: a pid means nothing there.
    """
    for folder in parent.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            own_dir = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if own_dir and _is_left(json.loads(read_own_file(folder / OWNER))):
                shutil.rmtree(folder)


def _is_left(owner: dict[str, Any]) -> bool:
    """Return whether an owner has ended: with its machine's last boot, or as a process here."""
    here = own_place()
    if owner["machine"] != own_machine():
        return False
    if owner["boot"] != here.boot:
        return True
    if owner["pids"] != here.pids:
        return False
    if (stat := process_stat(owner["pid"])) is not None:
        return bool(stat.start_ticks != owner["ticks"])
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    return False  # there, and hidden


LOG = "agent.log"
LOG_BYTES = 1_000_000
"""A log that holds so much begins again."""
LOOK_S = 1.0
TAIL_LINES = 20
LINE_BYTES = 4000


def begin_log(scratch: Path) -> None:
    """Have what this process and its libraries write to stderr go to a file; raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(scratch / LOG, flags, 0o600)
    os.dup2(descriptor, 2)
    os.close(descriptor)


async def keep_log_small() -> None:
    """Empty the log whenever it is full."""
    while True:
        if os.fstat(2).st_size >= LOG_BYTES:
            os.ftruncate(2, 0)
        await asyncio.sleep(LOOK_S)


def log_tail(scratch: Path) -> tuple[str, ...]:
    """Return the last lines of the log; none where they cannot be read."""
    try:
        with (scratch / LOG).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_LINES * LINE_BYTES))
            return tuple(file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:])
    except OSError:
        return ()
