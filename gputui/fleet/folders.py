"""A folder of this machine for programs: packed, and sent to the hosts that are to run them."""

import asyncio
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from gputui.errors import ClusterError
from gputui.fleet.host import FleetHost
from gputui.process.child import run
from gputui.protocol.programs import SendFolder, packed

MOST_BYTES = 2**28
"""Of a packed folder."""
SENT_BYTES = 2**19
"""Of one message: a line is 1 MiB at most."""
TAKEN_S = 60.0
"""How long a host may take to keep a piece, or to unpack the whole."""


class Bounded:
    """A file that takes no more than `MOST_BYTES`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, MOST_BYTES

    def write(self, data: bytes) -> int:
        """Write; raises ClusterError past the bound."""
        self._left -= len(data)
        if self._left < 0:
            raise ClusterError(
                f"--send: more than {MOST_BYTES // 2**20} MiB when packed\n"
                "  leave data out by a .gitignore of a git repository, "
                "or copy it to the hosts and give --cwd"
            )
        return self._file.write(data)


async def pack_folder(folder: str, archive: IO[bytes]) -> None:
    """Pack a folder into a file, without what git ignores; raises ClusterError."""
    try:
        names = await _names(Path(folder).absolute(), is_repository=True)
        if not names:
            raise ClusterError(f"--send {folder}: it is empty, or git ignores all of it")
        await asyncio.to_thread(_pack, Path(folder), names, archive)
    except OSError as error:
        what = error.filename or folder
        raise ClusterError(f"--send {what}: {error.strerror or error}") from error


async def _names(folder: Path, *, is_repository: bool) -> list[str]:
    """Return the paths in a folder, without those that git ignores, also in repositories below."""
    listed = await _listed(folder) if is_repository else None
    names, folders = await asyncio.to_thread(_looked_at, folder, listed)
    for name in folders:
        is_repository = listed is not None or (folder / name / ".git").exists()
        below = await _names(folder / name, is_repository=is_repository)
        names += [str(Path(name) / each) for each in below]
    return names


def _looked_at(folder: Path, listed: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the names in a folder, and the folders among them.

    Git lists files, and a repository as a folder; `./` is a submodule that was not cloned.
    """
    names = [each.name for each in folder.iterdir()] if listed is None else listed
    inner = [(name, folder / name) for name in names]
    return names, [n for n, p in inner if p != folder and p.is_dir() and not p.is_symlink()]


async def _listed(folder: Path) -> list[str] | None:
    """Return the paths that git does not ignore; None outside a repository, or without git."""
    try:
        listed = await run(["git", "-C", str(folder), "ls-files", "-zco", "--exclude-standard"])
    except (FileNotFoundError, PermissionError):
        return None
    if listed.status == 0:
        return [each for each in listed.output.split("\0") if each]
    if any((each / ".git").exists() for each in (folder, *folder.parents)):
        why = " ".join(line.strip() for line in listed.last_log_lines)
        raise ClusterError(f"--send {folder}: git: {why}")
    return None


def _pack(folder: Path, names: Iterable[str], archive: IO[bytes]) -> None:
    bounded: IO[bytes] = Bounded(archive)  # type: ignore[assignment]
    with tarfile.open(fileobj=bounded, mode="w:gz", compresslevel=1) as tar:
        for name in names:
            if os.path.lexists(folder / name):  # git lists what was removed since
                tar.add(folder / name, name, recursive=False, filter=_of_nobody)
    archive.flush()


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose a file is: there, it is that user's."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def send_folder(archive: IO[bytes], run: str, hosts: Iterable[FleetHost]) -> None:
    """Have hosts unpack a folder for a run; raises ClusterError."""
    await asyncio.gather(*(_send(archive.fileno(), run, host) for host in hosts))


async def _send(archive: int, run: str, host: FleetHost) -> None:
    start, data = 0, b"-"
    while data:
        data = await asyncio.to_thread(os.pread, archive, SENT_BYTES, start)
        taken = await host.ask_agent(SendFolder(0, run, start, packed(data)), TAKEN_S)
        if taken is None:
            raise ClusterError(f"{host.name} did not take the folder within {TAKEN_S:g} s")
        if taken.error:
            raise ClusterError(f"{host.name} cannot keep the folder: {taken.error}")
        start += len(data)
