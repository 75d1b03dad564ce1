"""HOSTS, as given → the hosts, the text of their file, and where it came from; spans and sizes.

The one place that decides between a file and a text, for the command line and for Python.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gputui.errors import UsageError
from gputui.groups import members
from gputui.model.frozen import frozen
from gputui.model.hosts import Host, bytes_of, parse_hosts
from gputui.model.readings import Wanted

MAX_BYTES = 2**20
LOCAL = "localhost"
QUOTED = re.compile(r'"[^"\n]*"')
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@frozen
class HostsInput:
    """The hosts of a cluster and where they came from."""

    text: str
    hosts: tuple[Host, ...]
    source: str
    """The absolute path of the file; "" without one."""
    name: str
    """The cluster's default name: the file's stem, or `local`."""


def read_hosts(hosts: str | Path | Iterable[str] | None, text_name: str = "HOSTS") -> HostsInput:
    """Return the hosts that `hosts` names; errors in a text begin with `text_name`.

    None is this machine; an existing path, or anything with a `/` (but in `key=value`, `://` and
    quotes) or ending in `.txt`, is a file; `-` is stdin; anything else is the text itself, with `;`
    between lines. Raises UsageError when there is no such file, or it is no text; HostsError with
    every bad line.

    >>> [host.name for host in read_hosts("gpu-a; gpu-b gpus=0,1").hosts]
    ['gpu-a', 'gpu-b']
    >>> read_hosts("gpu-a python=/opt/env/bin/python").name
    'local'
    """
    text, source = _text_of(hosts)
    shown = str(hosts) if source else "standard input" if hosts == "-" else text_name
    name = Path(source).stem.lstrip(".-") or "local"
    return HostsInput(text, parse_hosts(text, shown, members), source, name)


def _text_of(hosts: str | Path | Iterable[str] | None) -> tuple[str, str]:
    """Return the text of a hosts file, and the absolute path it came from or ""."""
    if hosts is None:
        return LOCAL, ""
    if isinstance(hosts, Path):
        return _read(hosts)
    if not isinstance(hosts, str | Iterable):
        number = f"; for a number of workers write workers={hosts}" * isinstance(hosts, int)
        raise UsageError(f"hosts={hosts!r}: write the path of a hosts file, or its lines{number}")
    if not isinstance(hosts, str):
        lines = tuple(hosts)
        if wrong := [line for line in lines if not isinstance(line, str)]:
            raise UsageError(f"hosts: {wrong[0]!r} is no line of a hosts file, such as 'gpu-a'")
        return "\n".join(lines), ""
    if hosts == "-":
        return _text(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input"), ""
    if hosts.endswith(".py") or ".py:" in hosts:
        raise UsageError(f"{hosts}: is Python; to run it: gputui HOSTS --run {hosts}")
    if hosts.endswith(".ipynb"):
        hint = "open it in Jupyter, where GPUCluster(…) starts a cluster and connect(…) uses one"
        raise UsageError(f"{hosts}: is a notebook; {hint}")
    words = QUOTED.sub("", hosts).split()
    is_path = any("/" in word for word in words if "=" not in word and "://" not in word)
    if is_path or hosts.endswith(".txt") or os.path.exists(hosts):  # noqa: PTH110
        return _read(Path(hosts))
    if "." in hosts and (near := _near(Path(hosts))):
        raise UsageError(f"{hosts}: no such file{near}; a host of that name goes into a file")
    return re.sub(f"({QUOTED.pattern})|;", lambda found: found[1] or "\n", hosts), ""


def _near(path: Path) -> str:
    """Return " (did you mean …?)" where a hosts file has nearly this name."""
    try:
        files = [each.name for each in path.parent.iterdir() if each.suffix == ".txt"]
    except (OSError, ValueError):
        return ""
    near = get_close_matches(path.name, files, 1, 0.75)
    return f" (did you mean {path.parent / near[0]}?)" if near else ""


def _read(path: Path) -> tuple[str, str]:
    try:
        with path.expanduser().open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file{_near(path)}") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory; name a file with one host a line") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return _text(data, str(path)), str(path.expanduser().absolute())


def _text(data: bytes, source: str) -> str:
    """Decode bytes; raises UsageError if they are no text."""
    if len(data) > MAX_BYTES:
        raise UsageError(f"{source}: a hosts file of more than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: not a text in UTF-8 (byte {error.start})") from error


def parse_span(text: str) -> float:
    """Return a span of time in seconds; raises UsageError.

    >>> parse_span("90"), parse_span("2h"), parse_span("1h30m")
    (90.0, 7200.0, 5400.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise UsageError(f"'{text}' is not a span of time: write 90s, 30m, 2h or 1d")
    return float(sum(float(value) * UNITS_S[unit or "s"] for value, unit in parts))


def parse_size(option: str, text: str) -> int:
    """Return a size in bytes, 0 for none; raises UsageError."""
    if text.isdigit():
        raise UsageError(f"{option} {text}: write its unit, as in {option} {text}GiB")
    try:
        return bytes_of(text) if text else 0
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def check_per_host(
    gpus: int, per_host: int | None, written: Callable[[str], str] = "--{}".format
) -> None:
    """Raise UsageError where so many of each host never add up to the number in all.

    `written` returns an option as its user writes it.
    """
    if per_host and (over := gpus % per_host):
        option, number = written("gpus-per-host"), written("gpus")
        hint = f"write {number} {gpus - over + per_host}, or leave it out"
        raise UsageError(f"{option}: {number} {gpus} is no multiple of {per_host}; {hint}")


def wanted_gpus(hosts: HostsInput, options: Mapping[str, Any]) -> Wanted:
    """Return the free GPUs that a cluster of these hosts is to take; raises UsageError."""
    wanted = Wanted(
        options["gpus"] or 0,
        options["gpus_per_host"] or 0,
        parse_size("--memory-free", options["memory_free"]),
        parse_span(options["wait"] or "0"),
    )
    check_wanted(wanted, hosts.hosts, "--{}".format)
    return wanted


def check_wanted(wanted: Wanted, hosts: Iterable[Host], written: Callable[[str], str]) -> None:
    """Raise UsageError where hosts cannot give free GPUs that are wanted, or none are.

    `written` returns an option as its user writes it.
    """
    gpus = written("gpus")
    if wanted.count:
        if all(host.gpus == () for host in hosts):
            raise UsageError(f"{gpus}: no host gives GPUs: leave out gpus=none")
        check_per_host(wanted.count, wanted.per_host, written)
    elif wanted.per_host:
        raise UsageError(f"{written('gpus-per-host')}: for {gpus} N, the number in all")
    elif (wanted.wait_s or wanted.memory_bytes) and not any(host.free_gpus for host in hosts):
        option = written("wait" if wanted.wait_s else "memory-free")
        raise UsageError(f"{option}: for {gpus} N, or gpus=free:N in HOSTS")
