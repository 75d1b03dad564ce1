"""A frontend's hold on a cluster: start or find its head, attach, scale, run, stop.

All of it is loaded when first used: a wrong word in a hosts file waits for no protocol, and only
`GPUCluster`, `RunningCluster` and `connect` import distributed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputui.cluster.gpucluster import GPUCluster as GPUCluster
    from gputui.cluster.gpucluster import connect as connect
    from gputui.cluster.head_connection import HeadConnection as HeadConnection
    from gputui.cluster.head_connection import security as security
    from gputui.cluster.running import RunningCluster as RunningCluster
    from gputui.cluster.sources import default_name as default_name
    from gputui.cluster.sources import read_hosts as read_hosts
    from gputui.cluster.start import HeadProcess as HeadProcess
    from gputui.cluster.start import check_enough as check_enough
    from gputui.cluster.start import failures as failures
    from gputui.cluster.start import spawn_head as spawn_head
    from gputui.connection_file import ConnectionFile as ConnectionFile
    from gputui.connection_file import find_cluster as find_cluster
    from gputui.connection_file import running_clusters as running_clusters

_HOMES = {
    "GPUCluster": "gputui.cluster.gpucluster",
    "connect": "gputui.cluster.gpucluster",
    "RunningCluster": "gputui.cluster.running",
    "HeadConnection": "gputui.cluster.head_connection",
    "security": "gputui.cluster.head_connection",
    "default_name": "gputui.cluster.sources",
    "read_hosts": "gputui.cluster.sources",
    "HeadProcess": "gputui.cluster.start",
    "check_enough": "gputui.cluster.start",
    "failures": "gputui.cluster.start",
    "spawn_head": "gputui.cluster.start",
    "ConnectionFile": "gputui.connection_file",
    "find_cluster": "gputui.connection_file",
    "running_clusters": "gputui.connection_file",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gputui.cluster' has no attribute {name!r}")
