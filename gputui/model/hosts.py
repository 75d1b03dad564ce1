"""Text → `Host` values: the grammar of hosts.txt, every bad line reported at once.

One host a line, `#` comments, `key=value` options; ranges are expanded; a line that begins
with `*` gives defaults for the lines after it. Called by the command line, the head (`:add`,
`:reload`) and Python; pure, so nothing here resolves a name or reads a file.
"""

import ipaddress
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from gputui.errors import HostsError, UsageError


@dataclass(frozen=True, slots=True)
class Host:
    """One machine, as a line of the hosts file asks for it."""

    name: str
    """As it was written, without user and port: the host part of its workers' names.

    Two ports of one name, as a gateway forwards them, are two hosts: theirs have the port.
    """
    user: str | None = None
    port: int | None = None
    gpus: tuple[str, ...] | None = None
    """None is every GPU, () none; else NVML indices ("0") or UUIDs ("GPU-…", "MIG-…")."""
    workers_per_gpu: int = 1
    workers: int | None = None
    """CPU workers, where it has no GPUs to use."""
    nthreads: int | None = None
    memory_bytes: int | None = None
    """A worker's host-memory limit; None shares the host's memory among its workers."""
    python: str | None = None
    setup: str = ""
    """What the host's login shell runs before Python, `module load cuda`; "" for nothing."""
    env: tuple[tuple[str, str], ...] = ()
    line: int = 0
    address: str = ""
    """What to give to ssh, where `name` has the port in it."""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, reached without SSH."""
        return self.name == "localhost" and self.user is None and self.port is None

    @property
    def ssh_name(self) -> str:
        """The name to give to ssh."""
        return self.address or self.name


def parse_hosts(text: str, source: str = "hosts") -> tuple[Host, ...]:
    r"""Return the hosts that a text names, in its order.

    Raises HostsError with one problem for every bad line, and when there is no host at all.

    >>> [host.name for host in parse_hosts("gpu[01-02],gpu-c  # two and one")]
    ['gpu01', 'gpu02', 'gpu-c']
    >>> parse_hosts("* gpus=0\nalice@a:2222")[0].gpus
    ('0',)
    >>> parse_hosts("a gpu=0\nb memory=lots", "hosts.txt")
    Traceback (most recent call last):
    gputui.errors.HostsError: hosts.txt:1: unknown key 'gpu' (did you mean 'gpus'?)
    hosts.txt:2: memory='lots': write a size such as 64GiB
    """
    problems: list[str] = []
    hosts: dict[tuple[str, int | None], Host] = {}
    defaults = Host("*")
    for number, words in _lines(text):
        try:
            if words[0] == "*":
                defaults = _with_options(Host("*", line=number), words[1:])
                continue
            for host in _hosts_of(words, replace(defaults, line=number)):
                key = host.name, host.port
                if key in hosts:
                    raise UsageError(
                        f"host {host.name!r} is already named on line {hosts[key].line}"
                    )
                hosts[key] = host
        except UsageError as error:
            problems += [f"{source}:{number}: {line}" for line in str(error).splitlines()]
    if not hosts and not problems:
        problems = [f"{source}: {_nothing(text)}; write one a line, such as 'gpu-a' or 'localhost'"]
    if problems:
        raise HostsError(tuple(problems))
    names = Counter(host.name for host in hosts.values())
    return tuple(_with_port(host) if names[host.name] > 1 else host for host in hosts.values())


def _with_port(host: Host) -> Host:
    """Return a host with its port in its name.

    >>> [host.name for host in parse_hosts("gw:2201,gw:2202,gw")]
    ['gw:2201', 'gw:2202', 'gw']
    """
    if host.port is None:
        return host
    name = f"[{host.name}]" if ":" in host.name else host.name
    return replace(host, name=f"{name}:{host.port}", address=host.name)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of every line that says something."""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if words := _words(line):
            yield number, words


def _words(line: str) -> list[str]:
    r"""Return the words of a line without its comment; double quotes hold what has spaces.

    >>> _words('a setup="module load cuda # 13" gpus=0  # mine')
    ['a', 'setup=module load cuda # 13', 'gpus=0']
    >>> _words('# nothing')
    []
    """
    words = []
    for word in re.findall(r'(?:"[^"]*"|\S)+', line):
        if word.startswith("#"):
            break
        words.append(re.sub(r'"([^"]*)"', r"\1", word))
    return words


def _nothing(text: str) -> str:
    """Say what is wrong with a text without a host.

    >>> _nothing(" "), _nothing("# nobody"), _nothing("* workers=2")
    ('is empty: it names no host', 'has comments only: it names no host', 'names no host')
    """
    if any(_lines(text)):
        return "names no host"
    return f"{'has comments only' if text.strip() else 'is empty'}: it names no host"


def _hosts_of(words: list[str], defaults: Host) -> Iterator[Host]:
    """Yield the hosts of one line; bare names may be joined by commas."""
    base = _with_options(defaults, words[1:])
    for target in _split_outside_brackets(words[0]):
        user, name, port = _target(target)
        for expanded in _expand(name):
            yield replace(base, name=expanded, user=user, port=port)


def _split_outside_brackets(text: str) -> list[str]:
    """Split at the commas that are not within a range.

    >>> _split_outside_brackets("gpu[1,3],b")
    ['gpu[1,3]', 'b']
    """
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def _target(text: str) -> tuple[str | None, str, int | None]:
    """Split `user@host:port`; an IPv6 address with a port stands in brackets.

    >>> _target("alice@gpu-b:2222")
    ('alice', 'gpu-b', 2222)
    >>> _target("[fe80::1]:22"), _target("fe80::1")
    ((None, 'fe80::1', 22), (None, 'fe80::1', None))
    """
    user, at, rest = text.rpartition("@")
    if at and not re.fullmatch(r"[\w.+$-]+", user):
        raise UsageError(f"{text!r}: {user!r} is not a user name")
    name, port = rest, ""
    if bracketed := re.fullmatch(r"\[([0-9a-fA-F:.%\w]*:[0-9a-fA-F:.%\w]*)\](?::(.*))?", rest):
        name, port = bracketed[1], bracketed[2] or ""
    elif not _is_ip(rest) and ":" in rest:
        name, _, port = rest.rpartition(":")
        if not port:
            raise UsageError(f"{text!r}: no port after the colon")
    return user or None, name, _port(port) if port else None


def _port(text: str) -> int:
    """Return a TCP port, or raise UsageError."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise UsageError(f"port {text!r}: write a number from 1 to 65535")
    return int(text)


def _is_ip(text: str) -> bool:
    """Return whether this is an IP address, with or without the interface that is its zone.

    >>> _is_ip("fe80::1%eth0"), _is_ip("fe80::1%a;b"), _is_ip("gpu-a")
    (True, False, False)
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    _, percent, zone = text.partition("%")
    return not percent or re.fullmatch(r"[\w.-]{1,15}", zone) is not None


MAX_HOSTS_PER_RANGE = 10_000
"""A range past this is a slip of the finger, and expanding it would take the memory."""

SPAN = r"(\d+)(?:-(\d+))?"
BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def _expand(name: str) -> list[str]:
    """Expand the ranges of a name (ClusterShell's syntax), and check what comes out."""
    if _is_ip(name):
        return [name]
    if (size := _range_size(name)) > MAX_HOSTS_PER_RANGE:
        raise UsageError(f"{name!r} names {size:,} hosts; at most {MAX_HOSTS_PER_RANGE:,}")
    names = _expanded(name) if "[" in name or "]" in name else [name]
    for each in names:
        if not re.fullmatch(r"[^\W_](?:[\w.-]*\w)?\.?", each) or len(each) > 253:
            raise UsageError(f"{each!r} is not a host name")
    return names


def _expanded(name: str) -> list[str]:
    """Return the names that ranges stand for.

    >>> _expanded("r7[9-10]n[01-02]")
    ['r79n01', 'r79n02', 'r710n01', 'r710n02']
    """
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    # ClusterShell 1.9's NodeSet takes r7[9-10] for r[79-710].
    texts, insides = BRACKETS.split(name)[::2], BRACKETS.findall(name)
    try:
        ranges = [list(RangeSet(inside).striter()) for inside in insides]
    except (RangeSetException, ValueError, AssertionError) as error:
        raise UsageError(f"{name!r} is not a range of hosts, such as gpu[01-16]") from error
    if not all(ranges) or "[" in "".join(texts) or "]" in "".join(texts):
        raise UsageError(f"{name!r} is not a range of hosts, such as gpu[01-16]")
    return [
        "".join(map("".join, itertools.zip_longest(texts, chosen, fillvalue="")))
        for chosen in itertools.product(*ranges)
    ]


def _range_size(name: str) -> int:
    """Return at most how many hosts the brackets of a name stand for, without expanding them.

    >>> _range_size("r[1-3]n[01-16,20]")
    51
    """
    spans = (
        sum(int(last or first) - int(first) + 1 for first, last in re.findall(SPAN, inside))
        for inside in BRACKETS.findall(name)
    )
    return math.prod(max(span, 1) for span in spans)


def _with_options(host: Host, words: list[str]) -> Host:
    """Return the host with its `key=value` words applied, all bad ones named at once."""
    changes: dict[str, Any] = {}
    env = dict(host.env)
    problems = []
    for word in words:
        key, equals, value = word.partition("=")
        try:
            if not equals:
                raise UsageError(f"{word!r}: options are written key=value")
            if key.startswith("env."):
                env[_variable(key)] = value
            elif key in OPTIONS:
                field, parse = OPTIONS[key]
                changes[field] = parse(key, value)
            else:
                raise UsageError(f"unknown key {key!r}{_suggestion(key)}")
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(problems))
    return replace(host, **changes, env=tuple(env.items()))


def _variable(key: str) -> str:
    """Return the name of the variable that `env.NAME` sets."""
    name = key.removeprefix("env.")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"{key!r}: {name!r} is not the name of an environment variable")
    return name


def _suggestion(key: str) -> str:
    """Return ' (did you mean …?)' where a key is near."""
    near = get_close_matches(key, [*OPTIONS, "env."], 1, 0.5)
    return f" (did you mean {near[0]!r}?)" if near else f"; there are {', '.join(OPTIONS)}, env.X"


def _gpus(key: str, value: str) -> tuple[str, ...] | None:
    """Parse `all`, `none`, indices with ranges, and UUIDs.

    >>> _gpus("gpus", "0,2-3")
    ('0', '2', '3')
    >>> _gpus("gpus", "MIG-3f0c,GPU-91aa")
    ('MIG-3f0c', 'GPU-91aa')
    """
    if value in ("all", "none"):
        return None if value == "all" else ()
    chosen: list[str] = []
    for part in value.split(","):
        if span := re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part):
            first, last = int(span[1]), int(span[2] or span[1])
            if last < first:
                raise UsageError(f"{key}={value!r}: {part!r} runs backwards")
            chosen += [str(index) for index in range(first, last + 1)]
        elif re.fullmatch(r"(GPU|MIG)-[0-9A-Za-z/-]+", part):
            chosen.append(part)
        else:
            raise UsageError(f"{key}={value!r}: write none, indices such as 0,2-3, or UUIDs")
    if twice := sorted({gpu for gpu in chosen if chosen.count(gpu) > 1}):
        raise UsageError(f"{key}={value!r}: {twice[0]} is named twice")
    return tuple(chosen)


def _count(key: str, value: str) -> int:
    """Parse a whole number from 1."""
    if not re.fullmatch(r"[0-9]{1,4}", value) or int(value) < 1:
        raise UsageError(f"{key}={value!r}: write a whole number from 1 to 9999")
    return int(value)


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def _size(key: str, value: str) -> int:
    """Parse bytes with a unit.

    >>> _size("memory", "1.5GiB")
    1610612736
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?)b?", value.lower())
    if not match or match[2] not in UNITS or float(match[1]) * UNITS[match[2]] < 1:
        raise UsageError(f"{key}={value!r}: write a size such as 64GiB")
    return int(float(match[1]) * UNITS[match[2]])


def _line(key: str, value: str) -> str:
    """Parse a line for a shell."""
    if not value or any(ord(c) < 32 for c in value):
        raise UsageError(f'{key}={value!r}: write a line in quotes: setup="module load cuda"')
    return value


def _path(key: str, value: str) -> str:
    """Parse the path, or the name, of an interpreter."""
    if not value or any(ord(c) < 32 for c in value):
        raise UsageError(f"{key}={value!r}: write the path of an interpreter")
    return value


OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "gpus": ("gpus", _gpus),
    "workers-per-gpu": ("workers_per_gpu", _count),
    "workers": ("workers", _count),
    "nthreads": ("nthreads", _count),
    "memory": ("memory_bytes", _size),
    "python": ("python", _path),
    "setup": ("setup", _line),
}
