"""Claims: who means to use a GPU of this host, agreed between people without a daemon or root.

A claim is a lock, `flock(2)`, on the file `UUID.lock` in one folder of the host. It excludes while
its process holds it and ends with that process. The kernel says who holds a lock (/proc/locks); a
file `UUID.UID.note` of the holder's own says why and until when, and counts only while the process
that wrote it holds the lock. Who waits holds a lock on a `ticket-*` of their own; the lowest comes
first.

Any program can join: `flock -n -o /dev/fd/9 CMD 9<FOLDER/UUID.lock`. Reading is enough to lock.
Without O_CREAT, because the kernel refuses O_CREAT on another user's file in a sticky folder
(fs.protected_regular).
"""

import contextlib
import fcntl
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from gputui.agent.gpu.processes import user_name
from gputui.errors import FolderError
from gputui.model.bounds import LAST_MOMENT
from gputui.model.plain_text import cut, safe
from gputui.model.readings import Claim, Note, Ticket
from gputui.process import procfs

SETTING = Path("/etc/gputui/claims")
"""Where an administrator writes the path of the folder."""

FOLDERS = (Path("/run/lock/gputui"), Path("/var/tmp/gputui-claims"))
"""Never /dev/shm: logind removes a user's files there at logout."""

MODE = 0o1777
NETWORK_FILE_SYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"),
    *("fuse.sshfs", "fuse.glusterfs"),
}
"""Their locks hold between machines, or not at all."""

MAX_NOTE_BYTES = 2**16
"""Of a note or a ticket, which names up to 512 GPUs."""
MAX_NOTE_CHARACTERS = 200
LAST_PLACE = 2**53
TRIES = 5
RETRY_S = 0.01
"""Who looks whether a lock is held takes it, shared, for a moment."""


def claims_folder(named: str, setting: Path = SETTING, folders: Iterable[Path] = FOLDERS) -> Path:
    """Return the host's folder of claims; the first user to need it makes it.

    `named` is GPUTUI_CLAIMS, for a container that sees the host's folder elsewhere.

    All users of a host must agree on one, so a folder that is there and cannot be trusted is an
    error, not a reason to take the next. Raises FolderError, or OSError.
    """
    if path := Path(named) if named else _administrators(setting):
        return _checked(path)
    for folder in folders:
        if folder.exists() or folder.is_symlink():
            return _checked(folder)
        if _sticky(folder.parent):
            return _checked(_made(folder))
    raise FolderError(f"no folder for claims: name one in {setting}, mode 1777")


def _administrators(setting: Path) -> Path | None:
    try:
        status = setting.stat()
    except FileNotFoundError:
        return None
    path = Path(setting.read_text(errors="replace").strip())
    if status.st_uid != 0 or status.st_mode & 0o022:
        raise FolderError(f"{setting} is not root's alone: chown root, chmod 644")
    if not path.is_absolute():
        raise FolderError(f"{setting} holds no absolute path")
    return path


def _sticky(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.stat().st_mode & MODE == MODE
    return False


def _made(folder: Path) -> Path:
    before = os.umask(0)
    with contextlib.suppress(OSError):  # whatever is there then is checked
        folder.mkdir(MODE)
    os.umask(before)
    return folder


def _checked(folder: Path) -> Path:
    """Return a folder that everybody may add to and nobody may take from.

    Raises FolderError, or OSError.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise FolderError(f"{folder} is not a folder")
    if stat.S_IMODE(status.st_mode) != MODE:
        raise FolderError(f"{folder} has mode {stat.S_IMODE(status.st_mode):o}, not 1777")
    kind = procfs.file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        raise FolderError(f"{folder} is on {kind}; write the path of a local folder to {SETTING}")
    return folder


def open_claims(environ: Mapping[str, str]) -> "tuple[Claims | None, str]":
    """Return this host's claims; None where it has no folder for them, and why."""
    try:
        return Claims(claims_folder(environ.get("GPUTUI_CLAIMS", ""))), ""
    except (FolderError, OSError) as error:
        return None, f"claims: {error}"


class Claims:
    """The claims of one host, seen and made by one process.

    The locks belong to this process: its children never inherit them, or one that outlives it
    would hold a claim under the pid of the dead.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        self._ticket: tuple[str, int] | None = None

    @property
    def ticket(self) -> str:
        """The name of one's own ticket, "" without one."""
        return self._ticket[0] if self._ticket else ""

    @property
    def held(self) -> frozenset[str]:
        """UUIDs that this process holds."""
        return frozenset(self._held)

    def seen(self, uuids: Iterable[str]) -> dict[str, Claim]:
        """Return the claim on each of these GPUs that is held, by anybody."""
        held = ((uuid, self._holder(f"{uuid}.lock")) for uuid in uuids)
        return {uuid: _claim(by, self._noted(uuid, *by)) for uuid, by in held if by}

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the waiting users in order; stopped processes do not count."""
        found = []
        for name in sorted(path.name for path in self._folder.glob("ticket-*")):
            holder = self._holder(name)
            if holder is None or (holder[0] and procfs.is_stopped(holder[0])):
                continue
            said = self._read(name, holder[1])
            uuids = said.get("uuids")
            if isinstance(uuids, list) and isinstance(said.get("gpus"), int):
                claim = _claim(holder, said.get("note"))
                found.append(Ticket(name, claim, tuple(map(str, uuids))))
        return tuple(found)

    def wait_in_line(self, uuids: Collection[str], gpus: int, note: Note, place: int = 0) -> int:
        """Take a ticket for `gpus` of these at a place, or the last; it lasts until `leave_line`.

        Returns its place. Raises OSError where the folder takes no file.
        """
        self.leave_line()
        self._sweep_own_tickets()
        if not place:
            # The clock that all of a host share and nobody sets; who stands in several hosts' lines
            # may be ahead of it.
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
            place = max([now, *(_place(each.name) + 1 for each in self.tickets())])
        name = f"ticket-{place:020d}-{os.getpid()}"
        said = {"uuids": sorted(uuids), "gpus": gpus, "note": _written(note)}
        self._ticket = (name, self._write(name, said))
        return place

    def leave_line(self) -> None:
        """Give up the ticket, if there is one."""
        if self._ticket is not None:
            name, descriptor = self._ticket
            self._ticket = None
            (self._folder / name).unlink(missing_ok=True)
            os.close(descriptor)

    def ahead(self, uuids: Collection[str]) -> tuple[Ticket, ...]:
        """Return the tickets on any of these GPUs: all, or those before one's own."""
        own = self.ticket or "ticket-~"
        wanted = set(uuids)
        return tuple(
            each for each in self.tickets() if each.name < own and wanted & set(each.uuids)
        )

    def claim(self, uuids: Collection[str], note: Note) -> tuple[str, ...]:
        """Claim all of these or none; return those that somebody else holds.

        The caller has looked at `ahead`. Raises OSError where the folder takes no file.
        """
        with contextlib.ExitStack() as undo:
            taken: dict[str, int] = {}
            # All in one order, so that no two of them wait for each other in a circle.
            for uuid in sorted(set(uuids) - self._held.keys()):
                descriptor = self._locked(f"{uuid}.lock")
                if descriptor is None:
                    free = self._held.keys() | taken.keys()
                    return tuple(u for u in self.seen(uuids) if u not in free) or (uuid,)
                undo.callback(os.close, descriptor)
                taken[uuid] = descriptor
            for uuid in taken:
                self.note(uuid, note)
            self._held |= taken
            undo.pop_all()
        return ()

    def note(self, uuid: str, note: Note) -> None:
        """Write the note of a claim; somebody who made a file of that name costs only the note."""
        with contextlib.suppress(OSError):
            said = {**_written(note), "pid": os.getpid()}
            os.close(self._write(_note_name(uuid), said))

    def is_noted(self, uuid: str) -> bool:
        """Whether a claim has its note: others may have removed that with the lock's file."""
        return self._read(_note_name(uuid), os.getuid()).get("pid") == os.getpid()

    def keep(self) -> tuple[str, ...]:
        """Lock removed files again; return those that somebody else holds now.

        A folder's owner may remove files in it, and tmpfiles.d removes what was not read for long.
        """
        lost = []
        for uuid, descriptor in list(self._held.items()):
            with contextlib.suppress(OSError):
                os.pread(descriptor, 1, 0)  # refreshes the time of access
            if self._same(f"{uuid}.lock", descriptor):
                continue
            again = self._locked(f"{uuid}.lock")
            os.close(descriptor)
            if again is None:
                self._remove_note(uuid)
                del self._held[uuid]
                lost.append(uuid)
            else:
                self._held[uuid] = again
        return tuple(lost)

    def release(self, uuids: Collection[str] | None = None) -> None:
        """End claims of this process: these, or all."""
        for uuid in [u for u in self._held if uuids is None or u in uuids]:
            self._remove_note(uuid)
            os.close(self._held.pop(uuid))

    def _remove_note(self, uuid: str) -> None:
        with contextlib.suppress(OSError):
            said = self._read(_note_name(uuid), os.getuid())
            if said.get("pid", os.getpid()) == os.getpid():
                (self._folder / _note_name(uuid)).unlink()

    def end_own(self, uuids: Collection[str]) -> None:
        """Have other processes of this user end that do nothing but hold these."""
        for claim in self.seen(uuids).values():
            if claim.own and claim.pid and claim.note.only_held and not claim.ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(claim.pid, signal.SIGTERM)

    def _locked(self, name: str) -> int | None:
        """Return the locked file of that name, None where somebody else holds it, or closed it."""
        for attempt in range(TRIES):
            if (descriptor := self._opened(name)) is None:
                return None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._same(name, descriptor):
                    return descriptor
                os.close(descriptor)
            except BlockingIOError:
                os.close(descriptor)
                if procfs.lock_of((self._folder / name).lstat()) in procfs.flock_holders():
                    return None
                time.sleep(RETRY_S * (attempt + 1))
        return None

    def _opened(self, name: str) -> int | None:
        """Return a lock's file, made where it is missing; None where this user cannot lock it."""
        path = self._folder / name
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        while True:
            try:
                descriptor = os.open(path, os.O_RDONLY | flags)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o644)
                    os.fchmod(descriptor, 0o644)
                    with contextlib.suppress(OSError):  # a full disk excludes as well
                        os.write(descriptor, b"\n")
                    return descriptor
                continue
            except OSError:
                return None
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
            return None

    def _same(self, name: str, descriptor: int) -> bool:
        """Whether the file that is open is the one that others find under this name."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat((self._folder / name).lstat(), os.fstat(descriptor))
        return False

    def _holder(self, name: str) -> tuple[int | None, int | None] | None:
        """Return pid and uid of the holder of a lock, None where nobody holds it.

        Neither is known where the holder is in another namespace of pids, or gone while a child of
        its own still has the lock. The kernel is asked only for what is held: its answer may take
        20 ms.
        """
        try:
            status = (self._folder / name).lstat()
        except FileNotFoundError:
            return None
        for _ in range(TRIES):  # it answers a page at a time: a lock can slip to the one before
            if not self._is_locked(name):
                return None
            holders = procfs.flock_holders()
            if pid := holders.get(procfs.lock_of(status)):
                break
        else:  # on btrfs the device number differs
            same = [each for (_, inode), each in holders.items() if inode == status.st_ino]
            pid = same[0] if len(same) == 1 else None
        uid = procfs.owner(pid) if pid else None
        return (None, None) if uid is None else (pid, uid)

    def _is_locked(self, name: str) -> bool:
        """Whether somebody has the lock, or made its file one that this user cannot lock."""
        try:
            return procfs.is_locked(self._folder / name) or not (self._folder / name).is_file()
        except OSError as error:
            return not isinstance(error, FileNotFoundError)

    def _noted(self, uuid: str, pid: int | None, uid: int | None) -> dict[str, object]:
        """Return a holder's note; nothing where another process of its user wrote it, and is gone.

        A holder in a container has another pid there.
        """
        lock = self._folder / f"{uuid}.lock"
        if uid is None and not (
            lock.is_file() and not lock.is_symlink() and os.access(lock, os.R_OK)
        ):
            return {"text": f"nobody can lock {lock}: its owner, or root, removes it"}
        said = self._read(f"{uuid}.{uid}.note", uid)
        own = (str(pid), *procfs.status_of(pid, "NSpid").split()) if pid else ()
        return said if str(said.get("pid")) in own else {}

    def _read(self, name: str, uid: int | None) -> dict[str, object]:
        """Return the object that a file of this user holds; empty where there is no such file."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with contextlib.suppress(OSError, ValueError, RecursionError):
            path = self._folder / name
            with open(path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
                status = os.fstat(file.fileno())
                own = stat.S_ISREG(status.st_mode) and status.st_uid == uid
                said = json.loads(file.read(MAX_NOTE_BYTES)) if own else None
            if isinstance(said, dict):
                return said
        return {}

    def _write(self, name: str, said: object) -> int:
        """Write a file that all may read, whole; return its descriptor, locked. Raises OSError."""
        descriptor, draft = tempfile.mkstemp(prefix=".draft-", dir=self._folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(descriptor, 0o644)
            os.write(descriptor, json.dumps(said).encode())
            Path(draft).rename(self._folder / name)
        except OSError:
            os.close(descriptor)
            Path(draft).unlink(missing_ok=True)
            raise
        return descriptor

    def _sweep_own_tickets(self) -> None:
        """Remove tickets that this user's killed processes left."""
        for path in self._folder.glob("ticket-*"):
            with contextlib.suppress(OSError):
                if path.lstat().st_uid == os.getuid() and not self._is_locked(path.name):
                    path.unlink()


def _place(ticket: str) -> int:
    """Return a ticket's place in line by its name, 0 for one that no message could carry.

    >>> [_place(f"ticket-{name}") for name in ("00000000000000000007-4711", "9" * 20, "of-mine")]
    [7, 0, 0]
    """
    digits = ticket.split("-")[1]
    place = int(digits) if digits.isascii() and digits.isdecimal() else 0
    return place if place < LAST_PLACE else 0


def _written(note: Note) -> dict[str, object]:
    """Return a note as its file has it, no longer than it is read."""
    text, person = (cut(each, MAX_NOTE_CHARACTERS) for each in (note.text, note.person))
    return asdict(replace(note, text=text, person=person))


def _note_name(uuid: str) -> str:
    return f"{uuid}.{os.getuid()}.note"


def _claim(holder: tuple[int | None, int | None], note: object) -> Claim:
    """Return a claim with its holder's note; fields of another form are ignored."""
    pid, uid = holder
    said = note if isinstance(note, dict) else {}
    since, until, idle_since = (
        # A number of hundreds of digits, which JSON may have, is no float.
        float(each)
        if isinstance(each := said.get(name), int | float) and 0 <= each <= LAST_MOMENT
        else None
        for name in ("since", "until", "idle_since")
    )
    text, person = (
        safe(str(said.get(name, "")))[:MAX_NOTE_CHARACTERS] for name in ("text", "person")
    )
    parsed = Note(text, since, until, idle_since, said.get("only_held") is True, person)
    user = None if uid is None else user_name(uid)
    return Claim(pid, user, parsed, ours=pid == os.getpid(), own=uid == os.getuid())
