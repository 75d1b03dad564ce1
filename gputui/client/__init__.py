"""A frontend's hold on a cluster: start or find its head, attach, scale, run, stop.

All of it is loaded when first used: a wrong word in a hosts file waits for no protocol, and only
`GPUCluster`, `RunningCluster` and `connect` import distributed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputui.client.gpucluster import GPUCluster as GPUCluster
    from gputui.client.gpucluster import connect as connect
    from gputui.client.head_connection import HeadConnection as HeadConnection
    from gputui.client.head_connection import security as security
    from gputui.client.running import RunningCluster as RunningCluster
    from gputui.client.sources import default_name as default_name
    from gputui.client.sources import read_hosts as read_hosts
    from gputui.client.start import HeadProcess as HeadProcess
    from gputui.client.start import check_enough as check_enough
    from gputui.client.start import failures as failures
    from gputui.client.start import spawn_head as spawn_head
    from gputui.protocol.connection_file import ConnectionFile as ConnectionFile
    from gputui.protocol.connection_file import find_cluster as find_cluster
    from gputui.protocol.connection_file import running_clusters as running_clusters

_HOMES = {
    "GPUCluster": "gputui.client.gpucluster",
    "connect": "gputui.client.gpucluster",
    "RunningCluster": "gputui.client.running",
    "HeadConnection": "gputui.client.head_connection",
    "security": "gputui.client.head_connection",
    "default_name": "gputui.client.sources",
    "read_hosts": "gputui.client.sources",
    "HeadProcess": "gputui.client.start",
    "check_enough": "gputui.client.start",
    "failures": "gputui.client.start",
    "spawn_head": "gputui.client.start",
    "ConnectionFile": "gputui.protocol.connection_file",
    "find_cluster": "gputui.protocol.connection_file",
    "running_clusters": "gputui.protocol.connection_file",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gputui.client' has no attribute {name!r}")
