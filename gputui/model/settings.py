"""The users' settings as one value, which heads and fleets take whole. Pure.

`gputui.settings` reads them from Dask's configuration.
"""

from dataclasses import dataclass, fields
from typing import Any

from gputui.model.bounds import Line, Name, Number, Port, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a cluster, with its default; times in seconds."""

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
