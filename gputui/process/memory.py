"""How much memory processes here may use, and of that a worker: read again each time.

Apart from the rest of a host's facts, because the forkserver imports it, too, and little else.
"""

from gputui.process import procfs
from gputui.process.cgroups import Cgroups


def memory(cgroups: Cgroups | None = None) -> procfs.MemoryUse:
    """Return the memory this process may use, and what is used of it, now.

    That is its cgroups' limit or the machine's memory, whichever is less. Ask again rather than
    keep it: a machine's memory may grow while it runs.
    """
    machine = procfs.memory()
    limit = (cgroups or Cgroups()).memory()
    return machine if limit is None or limit.total_bytes >= machine.total_bytes else limit


def memory_limit(bytes_: int, share: float) -> int:
    """Return a worker's limit now: what it was given, or its share where memory has grown."""
    return max(bytes_, int(memory().total_bytes * share)) if share else bytes_
