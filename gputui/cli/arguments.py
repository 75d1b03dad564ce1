"""HOSTS, as it is given: a file, stdin, or the text itself → what a cluster is made of."""

from dataclasses import dataclass

from gputui.client import default_name
from gputui.client import read_hosts as read_source
from gputui.model.hosts import Host, parse_hosts


@dataclass(frozen=True, slots=True)
class HostsInput:
    """The hosts of a cluster and where they came from."""

    text: str
    hosts: tuple[Host, ...]
    source: str
    """The absolute path of the file; "" without one."""
    name: str
    """What a cluster of them is called: the file's stem, or `local`."""


def read_hosts(given: str | None) -> HostsInput:
    """Return the hosts that the argument HOSTS means; None is this machine.

    Raises UsageError for what is no hosts file, HostsError with every bad line.
    """
    text, source = read_source(given)
    shown = "standard input" if given == "-" else given if source and given else "HOSTS"
    return HostsInput(text, parse_hosts(text, shown), source, default_name(source))
