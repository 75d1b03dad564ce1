"""A worker's location, as Dask's handshake carries it, and which of its memory can be reached.

Two processes reach each other's memory files where they see each other's /proc: on one boot of
one kernel, in one PID namespace, as one user. CUDA's handles need one IPC namespace, too; two
containers on one host share the boot, but none of these. What comes in is checked.
"""

import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
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
    device: bool
    """Whether it has a device, on which it can open handles."""

    @classmethod
    def here(cls, page_fd: int, *, device: bool) -> Self:
        """Return where this process is."""
        return cls(
            boot_id=_boot_id(),
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
        for name, field in cls.__dataclass_fields__.items():
            if type(values[name]) is not field.type:
                return None
        return cls(**values)

    def described(self) -> dict[str, Any]:
        """Return it as it goes into the handshake."""
        return asdict(self)

    def near(self, other: "Location") -> bool:
        """Return whether both reach each other's memory files and handles."""
        return self.pid != other.pid and all(
            getattr(self, name) == getattr(other, name)
            for name in ("boot_id", "pid_namespace", "ipc_namespace", "user")
        )

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


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
