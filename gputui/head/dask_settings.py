"""Dask's settings in a gputui cluster, for scheduler, workers and clients; each with its reason.

They are defaults: what a person's own Dask configuration says otherwise holds.
"""

import json
from typing import Any

SETTINGS: dict[str, Any] = {
    # A GPU worker has one thread and short tasks: with Dask's 1.1 it waits for the scheduler
    # after every second one.
    "distributed.scheduler.worker-saturation": 4.0,
    # A worker whose task holds the GIL for minutes is at work, not gone; whether it lives is
    # known to its agent, and a lost host's workers are removed when its lease runs out.
    "distributed.scheduler.worker-ttl": None,
    # A statistical profile every 10 ms costs the one Python thread that feeds a GPU.
    "distributed.worker.profile.enabled": False,
    # The agents read NVML once for all workers of a host, in a thread of their own; Dask would
    # in each worker's event loop.
    "distributed.diagnostics.nvml": False,
    # No worker serves HTTP, so there is nothing to route.
    "distributed.worker.http.routes": [],
    # Their agent reads the CPU and memory of workers every second, and the head the scheduler's.
    "distributed.admin.system-monitor.interval": "2s",
    # A timer every 20 ms wakes an idle process 50 times a second, only to measure its delay.
    "distributed.admin.tick.interval": "200ms",
    "distributed.admin.tick.cycle": "2s",
}


def settings_json(overrides_json: str = "{}") -> str:
    """Return the settings as JSON, nested as Dask keeps them, with dotted overrides on top."""
    nested: dict[str, Any] = {}
    for name, value in (SETTINGS | json.loads(overrides_json)).items():
        *parents, last = name.split(".")
        where = nested
        for parent in parents:
            where = where.setdefault(parent, {})
        where[last] = value
    return json.dumps(nested)
