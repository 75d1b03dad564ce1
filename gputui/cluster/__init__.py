"""A frontend's hold on a cluster: start or find its head, attach, scale, run, stop.

All of it is loaded when first used: a wrong word in a hosts file waits for no protocol, and only
`GPUCluster`, `RunningCluster` and `connect` import distributed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputui.cluster.gpucluster import GPUCluster, connect
    from gputui.cluster.link import HeadLink, security
    from gputui.cluster.running import RunningCluster
    from gputui.cluster.sources import default_name, read_hosts
    from gputui.cluster.start import (
        HeadProcess,
        check_enough,
        failures,
        spawn_head,
    )
    from gputui.connection_file import ConnectionFile, find_cluster, running_clusters

__all__ = [
    "ConnectionFile",
    "GPUCluster",
    "HeadLink",
    "HeadProcess",
    "RunningCluster",
    "check_enough",
    "connect",
    "default_name",
    "failures",
    "find_cluster",
    "read_hosts",
    "running_clusters",
    "security",
    "spawn_head",
]

_HOMES = {
    "gputui.cluster.gpucluster": ("GPUCluster", "connect"),
    "gputui.cluster.link": ("HeadLink", "security"),
    "gputui.cluster.running": ("RunningCluster",),
    "gputui.cluster.sources": ("default_name", "read_hosts"),
    "gputui.cluster.start": (
        "HeadProcess",
        "check_enough",
        "failures",
        "spawn_head",
    ),
    "gputui.connection_file": ("ConnectionFile", "find_cluster", "running_clusters"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'gputui.cluster' has no attribute {name!r}")
