"""A face's hold on a cluster: start or find its head, attach, scale, run, stop.

`GPUCluster`, `RunningCluster` and `connect` are loaded when first used: only they import
distributed.
"""

from typing import TYPE_CHECKING, Any

from gputui.cluster.link import HeadLink, Reply, security
from gputui.cluster.sources import default_name, read_hosts
from gputui.cluster.start import HeadProcess, Running, bring_up, check_enough, failures, spawn_head
from gputui.contact import Contact, find_cluster, running_clusters

if TYPE_CHECKING:
    from gputui.cluster.gpucluster import GPUCluster, connect
    from gputui.cluster.running import RunningCluster

__all__ = [
    "Contact",
    "GPUCluster",
    "HeadLink",
    "HeadProcess",
    "Reply",
    "Running",
    "RunningCluster",
    "bring_up",
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


def __getattr__(name: str) -> Any:
    if name in ("GPUCluster", "RunningCluster", "connect"):
        from gputui.cluster import gpucluster

        return getattr(gpucluster, name)
    raise AttributeError(f"module 'gputui.cluster' has no attribute {name!r}")
