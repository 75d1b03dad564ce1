"""Starter ↔ head: one line each way, on the head's stdin and stdout; then `Keep`."""

from dataclasses import dataclass

from gputui.model.bounds import (
    Document,
    Line,
    Name,
    Pid,
    Port,
    Seconds,
    WorkerNumber,
)
from gputui.model.readings import NOTHING_WANTED, Wanted
from gputui.model.settings import Settings
from gputui.protocol.shared import Refused


@dataclass(frozen=True, slots=True)
class ConfigureHead(Settings):
    """The head's first line on stdin; it answers with one line on stdout, `Opened` or `Refused`."""

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
    wanted: Wanted = NOTHING_WANTED
    """The free GPUs that it takes, where a number was asked for."""
    promised_s: Seconds | None = None
    """For how long the user means to use them; for the notes of claims."""
    watch: bool = False
    """Whether to have no scheduler before the first worker or the first Dask client."""
    stays: bool = False
    """Whether the cluster outlives its starter once that says `Keep`."""
    interactive: bool = False
    """Whether a screen is about to attach: questions then wait for it."""
    cpu_fallback: bool = False
    """Whether a host without a GPU may run CPU workers without `gpus=none`."""
    dashboard_address: Name = ""
    """Where to serve Dask's dashboard, loopback only; "" for no HTTP server at all."""
    metrics_port: Port | None = None
    """Where to serve metrics on the loopback address; 0 is any port, None for none."""
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
