"""Starter ↔ head: one line each way, on the head's stdin and stdout; then `Keep`.

The users' settings are one value, which heads and fleets take whole; `gputui.settings` reads it.
"""

from dataclasses import KW_ONLY, fields
from typing import Any

from gputui.model.bounds import (
    Document,
    Line,
    Name,
    Number,
    Pid,
    Port,
    Seconds,
    WorkerNumber,
)
from gputui.model.frozen import frozen
from gputui.model.readings import NOTHING_WANTED, Wanted
from gputui.protocol.shared import Refused

SCREEN_IDLE_S = 3600.0
"""A cluster that a screen left running ends after so long without a frontend or a run."""


@frozen
class Settings:
    """Every setting of a cluster, with its default; times in seconds."""

    _: KW_ONLY
    lease_s: Seconds = 10.0
    """`lease`: how long workers live without a message of the head."""
    stage_timeout_s: Seconds = 10.0
    """`stage-timeout`: the bound of each stage on the way to a ready host."""
    idle_timeout_s: Seconds | None = None
    """`idle-timeout`: when a cluster without a frontend or a run ends by itself; None is never."""
    head_cpus: Number | None = None
    """`head-cpus`: how many CPUs of a login machine the head uses, with its scheduler and the runs
    that it starts; None is all. It is not for clusters with workers on this machine."""
    busy: Name = "warn"
    """`busy`: what to do about GPUs that others use: warn, skip or refuse."""
    scheduler_host: Name | None = None
    """`scheduler.host`: where hosts reach this machine; None is the local end of each SSH
    connection."""
    scheduler_port: Port = 0
    """`scheduler.port`: where the scheduler listens; 0 is any port."""
    ssh_config: Line | None = None
    """`ssh.config`: an SSH configuration in place of ~/.ssh/config."""
    remote_gputui: Line | None = None
    """`ssh.remote-gputui`: the path of gputui on the machine that `up --on` starts it on."""
    runs_kept: Number = 1_000
    """`runs.kept`: how many records of runs are kept, the newest."""

    notify: Line | None = None
    """`notify`: a command, or a webhook's URL, for alarms and runs that end."""

    def keywords(self) -> dict[str, Any]:
        """Return the settings alone, as keyword arguments of any class that has them."""
        return {field.name: getattr(self, field.name) for field in fields(Settings)}


@frozen
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
    dashboard_port: Port | None = None
    """Where to serve Dask's dashboard on the loopback address; None for no HTTP server at all."""
    metrics_port: Port | None = None
    """Where to serve metrics on the loopback address; 0 is any port, None for none."""
    dask_config_json: Document = "{}"
    """The starter's own Dask settings, `dask_settings.given_json`: they hold over gputui's."""


@frozen
class Keep:
    """The starter's last line: the cluster does not end with it."""


@frozen
class Opened:
    """The head's server is open at this socket."""

    socket: Line


ToStarter = Opened | Refused
"""What a head answers."""
