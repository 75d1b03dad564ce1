"""Text → `Host` values: the grammar of hosts.txt, every bad line reported at once.

One host a line, `#` comments, `key=value` options; ranges are expanded; a line that begins
with `*` gives defaults for the lines after it. Called by the command line, the head (`:add`)
and Python; pure, so nothing here resolves a name, reads a file or looks into a group.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from gputui.errors import HostsError, UsageError
from gputui.model.frozen import frozen


@frozen
class Host:
    """One machine, as a line of the hosts file asks for it."""

    name: str
    """As it was written, without user and port: the host part of its workers' names.

    Two ports of one name, as a gateway forwards them, are two hosts: theirs have the port.
    """
    user: str | None = None
    port: int | None = None
    gpus: tuple[str, ...] | None = None
    """None is every GPU, () none; else NVML indices ("0"), UUIDs ("GPU-…", "MIG-…"), and MIG
    instances, all ("mig") or those of a profile ("mig:3g.40gb")."""
    free_gpus: int = 0
    """Of these, take so many that are free, once they are; 0 is all, also those in use."""
    workers_per_gpu: int = 1
    workers: int | None = None
    """CPU workers: the only ones where it has no GPUs to use, else in addition to GPU workers."""
    nthreads: int | None = None
    memory_bytes: int | None = None
    """A worker's host-memory limit; None shares the host's memory among its workers, 0 is none."""
    python: str | None = None
    setup: str = ""
    """A line for the login shell before Python, such as `module load cuda`."""
    listen: str = ""
    """Where its workers listen: an address, or an interface's name; "" is where it was reached."""
    ports: tuple[int, ...] = ()
    """The first and the last port that its workers listen on; () is any."""
    contact: str = ""
    """Where others reach its workers; "" is where they listen."""
    tunnel: bool | None = None
    """Whether its workers go through the SSH connection; None is where no other way is open."""
    env: tuple[tuple[str, str], ...] = ()
    line: int = 0
    address: str = ""
    """What to give to ssh, where `name` has the port in it."""
    slurm_job: int = 0
    """The Slurm job that it is a node of, and srun reaches it in; 0 for none."""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, reached without SSH."""
        return self.name == "localhost" and not (self.user or self.port or self.slurm_job)

    @property
    def by_hand(self) -> str:
        """The words with which a person runs a command there."""
        if self.slurm_job:
            return f"srun --jobid={self.slurm_job} --overlap -w {self.name}"
        port, user = f"-p {self.port} " * bool(self.port), f"{self.user}@" * bool(self.user)
        return f"ssh {port}{user}{self.ssh_name}"

    @property
    def ssh_name(self) -> str:
        """The name to give to ssh."""
        return self.address or self.name


MAX_HOSTS = 10_000
"""Of a text: more than that is a slip of the finger in a range."""
TOO_MANY = f"more than {MAX_HOSTS:,} hosts in all"
MAX_GPUS = 512
MAX_CHARACTERS = 2**20
MAX_PROBLEMS = 20
"""Lines that are reported; a file of another kind is wrong in every one."""


def _no_groups(name: str) -> str:
    raise UsageError(f"@{name} is a group: write a host")


def parse_hosts(
    text: str, source: str = "hosts", members: Callable[[str], str] = _no_groups
) -> tuple[Host, ...]:
    r"""Return the hosts that a text names, in its order.

    `members` returns those of an `@group`, as a line, or raises UsageError. Raises HostsError with
    one problem for every bad line, and when there is no host at all.

    >>> [host.name for host in parse_hosts("gpu[01-02],gpu-c  # two and one")]
    ['gpu01', 'gpu02', 'gpu-c']
    >>> parse_hosts("* gpus=0\nalice@a:2222")[0].gpus
    ('0',)
    >>> parse_hosts("a gpu=0\nb memory=lots", "hosts.txt")
    Traceback (most recent call last):
    gputui.errors.HostsError: hosts.txt:1: unknown key 'gpu' (did you mean 'gpus'?)
    hosts.txt:2: memory='lots': write a size such as 64GiB
    """
    if len(text) > MAX_CHARACTERS:
        raise HostsError((f"{source}: more than {MAX_CHARACTERS:,} characters",))
    problems: list[str] = []
    hosts: dict[tuple[str, int | None], Host] = {}
    defaults, given, lines = Host("*"), list[str](), 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        try:
            if not (words := _words(line)):
                continue
            lines += 1
            if words[0] == "*":
                defaults, given = _with_options(Host("*", line=number), words), words
                continue
            base = _with_options(replace(defaults, line=number), words, given)
            for host in _hosts(words[0], base, MAX_HOSTS - len(hosts), members):
                same = hosts.setdefault((host.name, host.port), host)
                if same is not host:
                    raise UsageError(f"host {host.name!r} is already named on line {same.line}")
        except UsageError as error:
            problems += [f"{source}:{number}: {each}" for each in str(error).splitlines()]
    if not hosts and not problems:
        only = "" if lines else "has comments only: it " if text.strip() else "is empty: it "
        hint = "write one a line, such as 'gpu-a' or 'localhost'"
        problems = [f"{source}: {only}names no host; {hint}"]
    if more := problems[MAX_PROBLEMS:]:
        problems[MAX_PROBLEMS:] = [f"{source}: … and {len(more):,} more: is it a hosts file?"]
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
        if word.count('"') % 2:
            raise UsageError(f"{word!r}: the quote is not closed")
        words.append(word.replace('"', ""))
    return words


def _hosts(targets: str, base: Host, room: int, members: Callable[[str], str]) -> Iterator[Host]:
    """Yield the hosts of a line's first word; bare names may be joined by commas."""
    for target in re.findall(r"(?:\[[^\]]*\]?|[^,])+", targets):
        if target.startswith("@"):
            words = _words(members(target[1:]))
            group = [*_hosts(words[0], _with_options(base, words), room, _no_groups)]
            room -= len(group)
            yield from group
            continue
        user, name, port = _target(target)
        if base.slurm_job and (user or port or base.tunnel):
            raise UsageError(f"{target!r}: srun has no user, port or tunnel: write {name} alone")
        names = [name] if is_ip(name) and room else _expand(name, room)
        room -= len(names)
        for each in names:
            if not is_ip(each) and not re.fullmatch(r"\w[\w.-]{0,252}", each):
                raise UsageError(f"{each[:80]!r} is not a host name")
            yield replace(base, name=each, user=user, port=port)


def _target(text: str) -> tuple[str | None, str, int | None]:
    r"""Split `user@host:port`; an IPv6 address with a port stands in brackets.

    >>> _target("alice@gpu-b:2222"), _target(r"CORP\me@host")
    (('alice', 'gpu-b', 2222), ('CORP\\me', 'host', None))
    >>> _target("[fe80::1]:22"), _target("fe80::1")
    ((None, 'fe80::1', 22), (None, 'fe80::1', None))
    """
    if url := re.match(r"\w+://(?:[^/@]*@)?([\w.-]+)", text):
        raise UsageError(f"{text[:80]!r} is the address of a page: write the host, {url[1]}")
    user, at, rest = text.rpartition("@")
    if at and not re.fullmatch(r"\w[\w.+$@\\-]{0,252}", user):
        raise UsageError(f"{text[:80]!r}: {user[:80]!r} is not a user name")
    name, colon, port = rest, "", ""
    if bracketed := re.fullmatch(r"\[([\w:.%]*:[\w:.%]*)\](?:(:)(.*))?", rest):
        name, colon, port = bracketed[1], bracketed[2] or "", bracketed[3] or ""
    elif not is_ip(rest) and ":" in rest:
        name, colon, port = rest.rpartition(":")
    if not colon:
        return user or None, name, None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        preset = f"; a preset is run by --run {name}.py:{port}" if port.isidentifier() else ""
        raise UsageError(f"port {port[:80]!r}: write a number from 1 to 65535{preset}")
    return user or None, name, int(port)


def is_ip(text: str) -> bool:
    """Return whether this is an IP address, with or without the interface that is its zone.

    >>> is_ip("fe80::1%eth0"), is_ip("fe80::1%a;b"), is_ip("gpu-a")
    (True, False, False)
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    _, percent, zone = text.partition("%")
    return not percent or re.fullmatch(r"[\w.-]{1,15}", zone) is not None


def _expand(name: str, most: int) -> list[str]:
    """Return the names that a name with ranges stands for, at most so many.

    >>> _expand("r7[9-10]n[01-03/2,8]", 99)
    ['r79n01', 'r79n03', 'r79n8', 'r710n01', 'r710n03', 'r710n8']
    """
    names = [""]
    for index, part in enumerate(re.split(r"\[([^\[\]]*)\]", name)):
        choices = _numbers(part, most) if index % 2 else [part]
        if len(names) * len(choices) > most:
            raise UsageError(f"{name[:80]!r}: {TOO_MANY}")
        names = [begun + each for begun in names for each in choices]
    return names


def _numbers(inside: str, most: int) -> list[str]:
    """Return the numbers that brackets hold, each as wide as the first of its span."""
    found: list[str] = []
    for span in inside.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?:/([1-9][0-9]{0,3}))?", span)
        numbers = match and range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if not match or not numbers:
            raise UsageError(f"[{inside[:80]}] is not a range of hosts, such as gpu[01-16]")
        width = len(match[1]) if match[1][0] == "0" else 1
        found += [f"{number:0{width}d}" for number in numbers[: most + 1]]
        if len(found) > most:
            raise UsageError(f"[{inside[:80]}]: {TOO_MANY}")
    return found


def _with_options(host: Host, words: list[str], defaults: Iterable[str] = ()) -> Host:
    """Return the host with the `key=value` words behind the first one, all bad ones named.

    `defaults` are the words that the host has its values from.
    """
    changes: dict[str, Any] = {}
    env = dict(host.env)
    problems = []
    given = set[str]()
    for before, word in pairwise(words):
        key, _, value = word.partition("=")
        if key in given:
            problems.append(f"{key[:80]}= is given twice")
        given.add(key)
        if mistake := _misplaced(before, word, words[0]):
            problems.append(mistake)
            break
        if key.startswith("env."):
            env[key.removeprefix("env.")] = value
            if not re.fullmatch(r"env\.[A-Za-z_][A-Za-z0-9_]*", key):
                problems.append(f"{key!r}: env.NAME sets an environment variable")
        elif key in OPTIONS:
            field, parse = OPTIONS[key]
            try:
                if field == "gpus":
                    number = value.removeprefix("free:")
                    changes["free_gpus"] = 0 if number == value else _count(number)
                    value = value if number == value else "all"
                changes[field] = parse(value)
            except ValueError as error:
                problems.append(f"{key}={value[:80]!r}: {error}")
        else:
            near = get_close_matches(key[:80], [*OPTIONS, "env."], 1, 0.5)
            known = f" (did you mean {near[0]!r}?)" if near else f"; there are {', '.join(OPTIONS)}"
            problems.append(f"unknown key {key[:80]!r}{known}" + ", env.X" * (not near))
    gpus = changes.get("gpus", host.gpus)
    both_kinds = any(word.startswith("gpus=") for word in (*defaults, *words))
    if "workers" in changes and gpus is None and not both_kinds:
        number = changes["workers"]
        hint = f"add gpus=none, gpus=all for both kinds, or write workers-per-gpu={number}"
        problems.append(f"workers={number} is a number of CPU workers: {hint}")
    if "workers_per_gpu" in changes and gpus == ():
        problems.append("workers-per-gpu with gpus=none: write workers=")
    if problems:
        raise UsageError("\n".join(problems))
    return replace(host, **changes, env=tuple(env.items()))


def _misplaced(before: str, word: str, first: str) -> str:
    """Return why a word is no `key=value`, and what to write; "" where it is one.

    >>> _misplaced("a,", "b", "a,"), _misplaced("a", "gpus=0", "a")
    ("'a, b': no spaces around commas", '')
    """
    key, equals, value = word.partition("=")
    if before.endswith(",") or word.startswith(",") or (key in OPTIONS and value.endswith(",")):
        both = word if equals else f"{before} {word}"
        return f"{both[:80]!r}: no spaces around commas"
    if word.startswith("-"):
        return f"{word[:80]!r} is an option of ssh: write user@host:port, or use ~/.ssh/config"
    if value.startswith("'"):
        return f'{word[:80]!r}: write double quotes: {key}="…"'
    if not key or before.endswith("=") or (not equals and word in OPTIONS):
        return f"{word[:80]!r}: no spaces around ="
    if not equals:
        hint = f"other hosts stand on lines of their own, or behind a comma: {first},{word}"
        return f"{word[:80]!r}: options are written key=value; {hint[:200]}"
    return ""


def _gpus(value: str) -> tuple[str, ...] | None:
    """Parse `all`, `none`, indices with ranges, UUIDs, and MIG profiles.

    >>> _gpus("0,2-3"), _gpus("mig:3g.40gb,mig:1g.10gb+me")
    (('0', '2', '3'), ('mig:3g.40gb', 'mig:1g.10gb+me'))
    >>> _gpus("MIG-3f0c,GPU-91aa")
    ('MIG-3f0c', 'GPU-91aa')
    """
    if value in ("all", "none"):
        return None if value == "all" else ()
    chosen: list[str] = []
    for part in value.split(","):
        if span := re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", part):
            first, last = int(span[1]), int(span[2] or span[1])
            if last < first:
                raise ValueError(f"{part!r} runs backwards")
            chosen += [str(index) for index in range(first, last + 1)]
        elif re.fullmatch(r"(GPU|MIG)-[0-9A-Za-z/-]{1,80}|mig(:[0-9a-z.+]{1,40})?", part):
            chosen.append(part)
        else:
            raise ValueError(
                "write all, none, free:2, indices such as 0,2-3, UUIDs, or mig:3g.40gb"
            )
        if len(chosen) > MAX_GPUS:
            raise ValueError(f"at most {MAX_GPUS}, each once")
    if twice := [gpu for gpu, times in Counter(chosen).items() if times > 1]:
        raise ValueError(f"{twice[0]} is named twice")
    return tuple(chosen)


def _like(pattern: str, example: str, make: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """Return a parser of values of this form; it raises ValueError with what to write.

    >>> _like("[1-9]", "a digit", int)("7")
    7
    """

    def parse(value: str) -> Any:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"write {example}")
        return make(value)

    return parse


_count = _like("(?=.{1,4}$)0*[1-9][0-9]*", "a whole number from 1 to 9999", int)
LINE = r"[^\x00-\x1f]+"
"""What a host's shell may be given."""


LEAST_MEMORY_BYTES = 100 * 2**20
"""Python with Dask and NumPy; a worker with less is ended before its first task."""


def bytes_of(value: str) -> int:
    """Parse bytes with a unit; none is 0, no limit. Raises ValueError.

    >>> bytes_of("1.5GiB"), bytes_of("none")
    (1610612736, 0)
    """
    if value == "none":
        return 0
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(i?)b?", value.lower())
    if not match or (match[3] and not match[2]):
        raise ValueError("write a size such as 64GiB")
    size = int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " "))
    if not 1 <= size < 2**60:
        raise ValueError("write a size such as 64GiB")
    return size


def _memory(value: str) -> int:
    """Parse a worker's memory limit."""
    size = bytes_of(value)
    if 0 < size < LEAST_MEMORY_BYTES:
        raise ValueError(f"a worker needs {LEAST_MEMORY_BYTES >> 20}MiB at least, such as 64GiB")
    return size


def _address(value: str) -> str:
    """Parse an IP address.

    >>> _address("[fd00::7]")
    'fd00::7'
    """
    address = value.removeprefix("[").removesuffix("]")
    if not is_ip(address):
        raise ValueError("write one of the host's IP addresses")
    return address


def _ports(value: str) -> tuple[int, ...]:
    """Parse a range of ports, or one.

    >>> _ports("40000-40100"), _ports("40000")
    ((40000, 40100), (40000, 40000))
    """
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", value)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 0 < first <= last < 65536:
        raise ValueError("write a range of ports, such as 40000-40100")
    return first, last


OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "gpus": ("gpus", _gpus),
    "workers-per-gpu": ("workers_per_gpu", _count),
    "workers": ("workers", _count),
    "nthreads": ("nthreads", _count),
    "memory": ("memory_bytes", _memory),
    "python": ("python", _like(LINE, "the path of an interpreter")),
    "setup": ("setup", _like(LINE, 'a line in quotes: setup="module load cuda"')),
    "listen": ("listen", _address),
    "interface": (
        "listen",
        _like(r"[A-Za-z][\w.@-]{0,14}", "the name of a network interface, such as eth0 or ib0"),
    ),
    "worker-ports": ("ports", _ports),
    "contact": ("contact", _address),
    "tunnel": ("tunnel", _like("true|false", "true or false", "true".__eq__)),
    "slurm": (
        "slurm_job",
        _like("[1-9][0-9]{0,9}", "the number of a job of yours, as squeue lists it", int),
    ),
}
"""Key → field, and a parser that raises ValueError with what to write."""
