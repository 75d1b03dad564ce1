"""Simulated hosts under the real head: `gputui --demo`, the README's pictures, tests, benchmarks.

The head, its fleet, events, alarms and requests are those of every cluster. What is simulated:
the agents of the hosts, the way to them, and their GPUs (`simulated_agent.py`, `devices.py`), the
scheduler (`simulated_scheduler.py`), runs and their tasks (`simulated_runs.py`), and what goes
wrong (`troubles.py`). `cluster.py` puts them together in one
process, over channels in memory. Nothing here reaches any machine, or writes a file.
"""

import re
from dataclasses import dataclass

from gputui.errors import UsageError

MOST_HOSTS, MOST_GPUS = 4096, 64
"""Of a cluster, and of a host."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a simulated cluster.

    >>> Shape.parse("125x8")
    Shape(hosts=125, gpus_per_host=8)
    """

    hosts: int
    gpus_per_host: int

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Read `HOSTSxGPUS`; raises UsageError where it is something else."""
        numbers = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text.lower())
        if numbers:
            shape = cls(int(numbers[1]), int(numbers[2]))
            if 1 <= shape.hosts <= MOST_HOSTS and 1 <= shape.gpus_per_host <= MOST_GPUS:
                return shape
        raise UsageError(
            f"--demo {text}: write HOSTSxGPUS, such as 125x8: "
            f"1 to {MOST_HOSTS:,} hosts of 1 to {MOST_GPUS} GPUs"
        )
