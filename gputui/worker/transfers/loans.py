"""Where a worker is, and which loans it holds, marked where their readers look.

Two processes reach each other's memory files where they see each other's /proc: on one boot of
one kernel, in one PID namespace, as one user. CUDA's handles need one IPC namespace, too; two
containers on one host share the boot, but none of these. What comes in is checked.

How values come is counted by way; why one comes another way than it could is printed, once each.

Each worker has one page of words, a file in memory. A loan has a word there from the moment it
is made until before anything of it is released, so that a reader who finds the word after its copy
knows that it copied what was lent, even if the comm has ended since.
"""

import contextlib
import os
import struct
import threading
from functools import cache
from pathlib import Path
from typing import Any, Self

from gputui.model.frozen import frozen
from gputui.model.usage import Way

WORD = struct.Struct("=Q")
PAGE_BYTES = 2**16


@frozen
class Location:
    """One worker's process."""

    boot_id: str
    pid_namespace: int
    ipc_namespace: int
    user: int
    pid: int
    page_fd: int
    """The descriptor of its loan page."""
    page_file: int
    """The page's inode, which distinguishes the process from a later one with its pid."""
    device: str
    """UUID of its device, on which it can open handles; "" without one."""

    @classmethod
    def here(cls, page_fd: int, *, device: str) -> Self:
        """Return where this process is."""
        return cls(
            boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            pid_namespace=Path("/proc/self/ns/pid").stat().st_ino,
            ipc_namespace=Path("/proc/self/ns/ipc").stat().st_ino,
            user=os.getuid(),
            pid=os.getpid(),
            page_fd=page_fd,
            page_file=os.fstat(page_fd).st_ino,
            device=device,
        )

    @classmethod
    def parse(cls, said: object) -> Self | None:
        """Parse a location from a comm's handshake; return None if the other end sends none."""
        if not isinstance(said, dict):
            return None
        values: dict[str, Any] = {name: said.get(name) for name in cls.__dataclass_fields__}
        kinds = {name: each.type for name, each in cls.__dataclass_fields__.items()}
        return cls(**values) if {n: type(v) for n, v in values.items()} == kinds else None

    def near(self, other: "Location") -> bool:
        """Return whether both reach each other's memory files and handles."""
        return self.pid != other.pid and all(
            getattr(self, name) == getattr(other, name)
            for name in ("boot_id", "pid_namespace", "ipc_namespace", "user")
        )

    def opens(self, other: "Location") -> bool:
        """Return whether handles of its device memory open there; not between MIG instances.

        Source: NVIDIA Multi-Instance GPU User Guide, application considerations.
        """
        devices = (self.device, other.device)
        mig = any(device.startswith("MIG-") for device in devices)
        return all(devices) and (self.device == other.device or not mig)

    def open(self, descriptor: int) -> int:
        """Open a memory file of that process by its descriptor there; raises OSError."""
        return os.open(f"/proc/{self.pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)

    def alive(self) -> bool:
        """Return whether that process still has its memory.

        The kernel takes the descriptors of a process that ends out of /proc before it closes
        them, and the driver frees device memory when its own are closed.
        """
        try:
            return os.stat(f"/proc/{self.pid}/fd/{self.page_fd}").st_ino == self.page_file  # noqa: PTH116
        except OSError:
            return False


last_ways = [Way.CONNECTION]
"""The way of the last bytes that came; preset `transfer` reports it."""
moved_bytes = dict.fromkeys(Way, 0)
"""What came to this process from other workers, by way."""
_moved_lock = threading.Lock()


def moved(way: Way, size: int) -> None:
    """Count bytes that came."""
    last_ways[0] = way
    with _moved_lock:
        moved_bytes[way] += size


@cache
def say_once(reason: str) -> None:
    """Print why arrays go another way than they could, unless it was printed before."""
    print(f"transfers: {reason}", flush=True)


class NotHeldError(OSError):
    """The owner released the loan before the copy was finished."""


@frozen
class Ticket:
    """Names one loan to its reader."""

    owner: Location
    slot: int
    word: int


class Page:
    """The words of this process's loans."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("gputui-loans", os.MFD_CLOEXEC)
        os.posix_fallocate(self.descriptor, 0, PAGE_BYTES)
        self._free = list(range(PAGE_BYTES // WORD.size))
        self._lock = threading.Lock()
        self._last = 0

    def take(self) -> tuple[int, int]:
        """Mark a new loan as held, and return its slot and its word; raises OSError when full."""
        with self._lock:
            if not self._free:
                raise OSError("every word of the loan page is in use")
            self._last += 1
            slot = self._free.pop()
            os.pwrite(self.descriptor, WORD.pack(self._last), slot * WORD.size)
            return slot, self._last

    def give_back(self, slot: int) -> None:
        """Mark a loan as held no more."""
        with self._lock:
            os.pwrite(self.descriptor, WORD.pack(0), slot * WORD.size)
            self._free.append(slot)


def check_held(ticket: Ticket) -> None:
    """Raise NotHeldError unless the owner lives and still holds the loan."""
    owner = ticket.owner
    with contextlib.suppress(OSError):
        page = owner.open(owner.page_fd)
        try:
            word = os.pread(page, WORD.size, ticket.slot * WORD.size)
            if word == WORD.pack(ticket.word) and os.fstat(page).st_ino == owner.page_file:
                return
        finally:
            os.close(page)
    raise NotHeldError(f"process {owner.pid} released what it lent")
