"""HOSTS and the flags of a start → the parts of a cluster's configuration."""

import importlib.util
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputui.client.sources import default_name
from gputui.client.sources import read_hosts as read_source
from gputui.errors import UsageError
from gputui.model.hosts import Host, parse_hosts


@dataclass(frozen=True, slots=True)
class HostsInput:
    """The hosts of a cluster and where they came from."""

    text: str
    hosts: tuple[Host, ...]
    source: str
    """The absolute path of the file; "" without one."""
    name: str
    """The cluster's default name: the file's stem, or `local`."""


@dataclass(frozen=True, slots=True)
class Starting:
    """The flags of a cluster that starts; None where one is not given."""

    name: str | None = None
    workers: int | None = None
    busy: str | None = None
    dashboard: int | None = None
    idle_timeout_s: float | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Starting":
        """Return those of a command's options; raises UsageError for a dashboard that cannot be."""
        if options["dashboard"] is not None:
            check_dashboard(options["dashboard"])
        return cls(
            name=options["name"],
            workers=options["workers"],
            busy=options["busy"],
            dashboard=options["dashboard"],
            idle_timeout_s=options.get("idle_timeout"),
        )


def check_dashboard(port: int) -> None:
    """Raise UsageError where no dashboard can be served on a port; Dask would take another one."""
    if importlib.util.find_spec("bokeh") is None:
        raise UsageError("--dashboard needs bokeh: pip install 'gputui[report]'")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            hint = "name another one, or 0 for any"
            raise UsageError(f"--dashboard {port}: {error.strerror}; {hint}") from error


def read_hosts(given: str | None) -> HostsInput:
    """Return the hosts that the argument HOSTS means; None is this machine.

    Raises UsageError if it is not a hosts file, HostsError with every bad line.
    """
    text, source = read_source(given)
    shown = "standard input" if given == "-" else given if source and given else "HOSTS"
    return HostsInput(text, parse_hosts(text, shown), source, default_name(source))
