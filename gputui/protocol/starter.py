"""Starter ↔ head: one line each way, on the head's stdin and stdout; then `Keep`."""

from dataclasses import dataclass

from gputui.model.bounds import (
    Document,
    Line,
    Name,
    Pid,
    Port,
    Seconds,
    Version,
    WorkerNumber,
)
from gputui.protocol.shared import Refused


@dataclass(frozen=True, slots=True)
class ConfigureHead:
    """The head's first line on stdin; it answers with one line on stdout, `Opened` or `Refused`."""

    version: Version
    name: Name
    hosts_text: Document
    numbered: bool = False
    """Whether to take `NAME-2` and so on where the name is in use, rather than refuse."""
    cluster_id: Name = ""
    """What its processes carry as GPUTUI_CLUSTER; the starter makes it."""
    starter_pid: Pid = 0
    """The process that starts the head."""
    hosts_source: Line = ""
    """The absolute path of the hosts file, or ""."""
    workers: WorkerNumber | None = None
    """The desired number; None is as many as the hosts give."""
    stays: bool = False
    """Whether the cluster outlives its starter once that says `Keep`."""
    interactive: bool = False
    """Whether a screen is about to attach: questions then wait for it."""
    idle_timeout_s: Seconds | None = None
    """End after so long with no frontend attached and nothing running; None is never."""
    lease_s: Seconds = 10.0
    """How long workers live without a message of the head; pings go out five times as often."""
    stage_timeout_s: Seconds = 10.0
    busy: Name = "warn"
    """What to do about a GPU that others use: warn, skip or refuse."""
    cpu_fallback: bool = False
    """Whether a host without a GPU may run CPU workers without `gpus=none`."""
    scheduler_host: Name | None = None
    """Where hosts reach this machine; None is the local end of each SSH connection."""
    scheduler_port: Port = 0
    dashboard_address: Name = ""
    """Where to serve Dask's dashboard, loopback only; "" for no HTTP server at all."""
    ssh_config: Line | None = None
    dask_config_json: Document = "{}"
    """The starter's own Dask settings, `dask_settings.given_json`: they hold over gputui's."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The starter's last line: the cluster does not end with it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The head's server is open at this socket."""

    socket: Line


ToStarter = Opened | Refused
"""What a head answers."""
