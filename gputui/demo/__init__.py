"""Simulated hosts under the real head: `gputui --demo`, the README's pictures, tests, benchmarks.

The head, its fleet, events, alarms and requests are those of every cluster. What is simulated:
the agents of the hosts, the way to them, and their GPUs (`simulated_agent.py`, `devices.py`), the
scheduler (`simulated_scheduler.py`), runs and their tasks (`simulated_runs.py`). `cluster.py` puts
them together in one process, over channels in memory, and has things go wrong. Nothing here reaches
any machine, or writes a file.
"""

import re

from gputui.errors import UsageError

MOST_HOSTS, MOST_GPUS = 4096, 64
"""Of a cluster, and of a host."""


def shape(text: str) -> tuple[int, int]:
    """Read `HOSTSxGPUS`, the numbers of hosts and of each one's GPUs; raises UsageError.

    >>> shape("125x8")
    (125, 8)
    """
    numbers = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text.lower())
    if numbers:
        hosts, gpus = int(numbers[1]), int(numbers[2])
        if 1 <= hosts <= MOST_HOSTS and 1 <= gpus <= MOST_GPUS:
            return hosts, gpus
    raise UsageError(
        f"--demo {text}: write HOSTSxGPUS, such as 125x8: "
        f"1 to {MOST_HOSTS:,} hosts of 1 to {MOST_GPUS} GPUs"
    )
