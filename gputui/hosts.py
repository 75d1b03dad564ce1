"""Text → `Host` values: the grammar of hosts.txt, every bad line reported at once."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """One machine, as a line of the hosts file asks for it."""

    name: str
    """As people wrote it, without user and port: the host part of its workers' names."""
    user: str | None = None
    port: int | None = None
    gpus: tuple[str, ...] | None = None
    """None is every GPU, () none; else NVML indices ("0") or UUIDs ("GPU-…", "MIG-…")."""
    workers_per_gpu: int = 1
    workers: int | None = None
    """CPU workers, where it has no GPUs to use."""
    nthreads: int | None = None
    memory_bytes: int | None = None
    """A worker's host-memory limit; None shares the host's memory among its workers."""
    python: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    line: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, reached without SSH."""
        return self.name == "localhost" and self.user is None and self.port is None
