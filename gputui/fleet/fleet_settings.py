"""The settings of a fleet: bounds, intervals, and where SSH's own files are."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from gputui.agent.facts import installed
from gputui.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a host must have exactly: pickles and Dask's messages depend on them."""

    python: str
    """`3.11`: the minor version decides what a pickled function can be read by."""
    dask: str
    distributed: str


@dataclass(frozen=True, slots=True)
class FleetSettings(Settings):
    """How the hosts of one cluster are reached and watched; times in seconds."""

    cluster_id: str
    cluster: str = ""
    """Its name; "" for what runs no workers."""
    telemetry_interval_s: float = 1.0
    start_timeout_s: float = 60.0
    """How long a worker that was asked for, or forked, may take to register."""
    ping_interval_s: float = 1.0
    silence_s: float = 5.0
    """A host that has said nothing for so long is silent; telemetry comes every second."""
    reconnect_s: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
    """Waits between attempts to reconnect; the last one repeats.

    None is longer than the interval of pings while the host's lease lasts: its workers live.
    """
    cpu_fallback: bool = False
    """Whether a host without a GPU may run CPU workers without `gpus=none`."""
    environ: tuple[tuple[str, str], ...] = ()
    """What workers find in their environment; a host's own `env.X=` comes over it."""
    temporary_directory: str | None = None
    """Where workers keep their files; None is where each host keeps such things."""
    frontends: Callable[[], tuple[int, ...]] = tuple
    """Returns the processes on this machine that use the cluster, by pid."""
    versions: Versions = field(default_factory=lambda: installed_versions())


def installed_versions() -> Versions:
    """Return the versions of this process, from metadata."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    here = installed_here()
    return Versions(python, here.get("dask", ""), here.get("distributed", ""))


@cache
def installed_here() -> Mapping[str, str]:
    """Return distribution → version of this process, as an agent reports those of its host."""
    return dict(installed())
