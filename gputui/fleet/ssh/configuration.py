"""What the SSH configuration says of a host: `route` asks `ssh -G`, for it and its jump hosts.

ssh evaluates its own files: every Match, Include and token that it knows. That takes some
milliseconds, and as long as a `Match exec` of the user's or a DNS server takes
(CanonicalizeHostname): it runs in a child, within its caller's bound. An option that would change
who is reached or trusted, and that gputui cannot honour, is named by `not_honoured`; forwardings,
terminals, variables and commands that a configuration asks for are meant for a person's own
session, and are not applied.
"""

import os
import pwd
import re
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from gputui.errors import UsageError
from gputui.fleet.addresses import bracketed
from gputui.model.frozen import frozen
from gputui.process.child import ending, run

SSH_PORT = 22
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
OFF = ("", "no", "false")
CONFIGURATION_HINT = "correct it: `ssh -G HOST` shows"
RENAMED = {
    "kbdinteractiveauthentication": "challengeresponseauthentication",
    "pubkeyacceptedalgorithms": "pubkeyacceptedkeytypes",
}
"""Option → its name in OpenSSH before 8.7."""


@frozen
class Here:
    """This user and machine, to which tokens and paths of a configuration refer."""

    user: str
    uid: int
    home: str
    """The home of the user's passwd entry, which ssh uses in place of $HOME."""
    hostname: str
    environ: Mapping[str, str]
    is_file: Callable[[str], bool] = lambda path: False
    file: str | None = None
    """An SSH configuration in place of ~/.ssh/config."""


@dataclass(frozen=True)
class SshConfiguration:
    """All that the SSH configuration says of one host; options are asked for in lower case.

    >>> here = Here("me", 1000, "/home/me", "laptop", {})
    >>> text = "hostname 10.0.0.5\\nport 2222\\nuser al\\nproxyjump a,b:22\\nbatchmode no"
    >>> found = SshConfiguration("gpu-a", text, here)
    >>> found.where, found.login_name, found.jumps, found.is_on("batchmode")
    ('10.0.0.5:2222', 'al@gpu-a', ('a', 'b:22'), False)
    """

    name: str
    """As it was asked for."""
    text: str
    """What `ssh -G` printed."""
    here: Here = field(compare=False)
    again: tuple[str, ...] = ()
    """The arguments with which ssh reaches the same host."""

    @cached_property
    def _lines(self) -> Mapping[str, Sequence[str]]:
        lines: defaultdict[str, list[str]] = defaultdict(list)
        for line in self.text.splitlines():
            option, _, value = line.partition(" ")
            lines[option.lower()].append(value.strip())
        return lines

    def lines(self, option: str) -> Sequence[str]:
        """Return all values of an option."""
        return self._lines.get(option) or self._lines.get(RENAMED.get(option, option), ())

    def word(self, option: str, default: str = "") -> str:
        """Return the value of an option; "" for none."""
        value = next(iter(self.lines(option)), default)
        return "" if value.lower() == "none" else value

    def is_on(self, option: str, default: str = "no") -> bool:
        """Return whether an option is set to yes."""
        return self.word(option, default) not in OFF

    def number(self, option: str, default: int) -> int:
        """Return the value of an option that is a number."""
        value = self.word(option)
        return int(value) if re.fullmatch("[0-9]{1,9}", value) else default

    def names(self, option: str) -> tuple[str, ...]:
        """Return the names that an option lists."""
        return tuple(filter(None, self.word(option).split(",")))

    def paths(self, option: str) -> tuple[str, ...]:
        """Return the paths of an option that has one in each line."""
        given = (text for text in self.lines(option) if text.lower() != "none")
        return tuple(filter(None, map(self.expand, given)))

    def known_hosts(self, option: str) -> tuple[str, ...]:
        """Return the paths of an option that ssh prints in one line, without quotes."""

        listed = _separate(self.word(option), lambda path: self.here.is_file(self.expand(path)))
        return tuple(filter(None, map(self.expand, listed)))

    def expand(self, text: str) -> str:
        """Return a path with its tokens, variables and `~` replaced."""
        text = substitute(text, self.tokens)
        text = re.sub(r"\$\{(\w+)\}", lambda found: self.here.environ.get(found[1], ""), text)
        return self.here.home + text[1:] if re.match("~(/|$)", text) else text

    @cached_property
    def tokens(self) -> Mapping[str, str]:
        """%-token → value; ssh itself expands %C. Source: ssh_config(5), TOKENS."""
        here = self.here
        return {
            "%": "%",
            "d": here.home,
            "h": self.hostname,
            "i": str(here.uid),
            "j": self.word("proxyjump"),
            "k": self.word("hostkeyalias") or self.name,
            "L": here.hostname.partition(".")[0],
            "l": here.hostname,
            "n": self.name,
            "p": str(self.port),
            "r": self.user,
            "u": here.user,
        }

    @property
    def hostname(self) -> str:
        """HostName, its tokens replaced: where to connect."""
        return next(iter(self.lines("hostname")), self.name)

    @property
    def port(self) -> int:
        """Port."""
        return self.number("port", SSH_PORT)

    @property
    def user(self) -> str:
        """The user to log in as."""
        return self.word("user", self.here.user)

    @property
    def where(self) -> str:
        """`address:port`, an IPv6 address in brackets."""
        return f"{bracketed(self.hostname)}:{self.port}"

    @property
    def login_name(self) -> str:
        """`user@name`."""
        return f"{self.user}@{self.name}"

    @property
    def jumps(self) -> tuple[str, ...]:
        """ProxyJump, first to last, each `user@host:port` or an ssh:// URI."""
        return tuple(filter(None, self._for_a_proxy("proxyjump").split(",")))

    @property
    def proxy_command(self) -> str:
        """ProxyCommand."""
        return self._for_a_proxy("proxycommand")

    def _for_a_proxy(self, option: str) -> str:
        return substitute(self.word(option), {key: self.tokens[key] for key in "%hnpr"})

    @property
    def prompts(self) -> int:
        """NumberOfPasswordPrompts; 0 with BatchMode, which never asks."""
        return 0 if self.is_on("batchmode") else self.number("numberofpasswordprompts", 3)

    @property
    def agent(self) -> str:
        """The socket of ssh-agent; "" for none. Source: ssh_config(5), IdentityAgent."""
        text = self.word("identityagent", "SSH_AUTH_SOCK")
        if variable := re.fullmatch(r"(SSH_AUTH_SOCK)|\$(\w+)", text):
            return self.here.environ.get(variable[1] or variable[2], "")
        return self.expand(text)

    @property
    def not_honoured(self) -> tuple[str, ...]:
        """Options that change who is reached or trusted, and that gputui does not have."""
        asked = {
            "ProxyUseFdpass": self.is_on("proxyusefdpass") and bool(self.word("proxycommand")),
            "PKCS11Provider": bool(self.word("pkcs11provider")),
            "Tunnel": self.is_on("tunnel"),
            "RevokedHostKeys": bool(self.word("revokedhostkeys")),
            "BindInterface": bool(self.word("bindinterface")),
        }
        return tuple(f"{name} {self.word(name.lower())}" for name in asked if asked[name])


def substitute(text: str, tokens: Mapping[str, str]) -> str:
    """Return a text with its %-tokens replaced; one that is not known stays.

    >>> substitute("%h:%p 100%%", {"h": "gpu-a", "p": "22", "%": "%"})
    'gpu-a:22 100%'
    """
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _separate(text: str, is_there: Callable[[str], bool]) -> Iterator[str]:
    r"""Split paths that ssh prints with a space between them, and without quotes.

    A path goes on past a space where that one is there, or no other path begins.

    >>> list(_separate("/home/me/.ssh/known hosts /b c d", lambda path: path == "c d"))
    ['/home/me/.ssh/known hosts', '/b', 'c d']
    """
    words = text.split(" ") if text else []
    while words:
        there = [n for n in range(1, len(words) + 1) if is_there(" ".join(words[:n]))]
        begins = [
            n
            for n in range(1, len(words))
            if words[n].startswith(("/", "~", "$")) or is_there(" ".join(words[n:]))
        ]
        count = max(there, default=0) or min(begins, default=len(words))
        yield " ".join(words[:count])
        del words[:count]


@frozen
class Destination:
    """A destination, as ssh takes it: `ssh [-F file] [-J jumps] [-l user] [-p port] name`."""

    name: str
    user: str | None = None
    port: int | None = None
    jumps: tuple[str, ...] = ()
    """As with -J, overriding the configuration."""

    def arguments(self, file: str | None) -> tuple[str, ...]:
        """Return the arguments that name it to ssh."""
        options = {"-F": file, "-J": ",".join(self.jumps), "-l": self.user, "-p": self.port}
        given = ((option, str(value)) for option, value in options.items() if value)
        return (*chain.from_iterable(given), self.name)


Route = tuple[SshConfiguration, ...]
"""The hosts on the way, the one that is meant last."""


async def route(
    destination: Destination, here: Here, command: str = "", behind: tuple[Destination, ...] = ()
) -> Route:
    """Return the configurations of all hosts on the way, first to last.

    The last one is for a `command` there. Of several jump hosts ssh takes the last one with
    those before it as its own: `ssh -J a,b c` is `ssh -J a b`, and then `c`. Raises
    UsageError, for a loop too.
    """
    on_the_way = (*behind, destination)
    loop = f"ProxyJump goes in a loop: {' → '.join(each.name for each in on_the_way)}"
    if destination in behind:
        raise UsageError(loop)
    try:
        configuration = await _evaluate(destination, here, command)
    except UsageError as error:
        if "jumphost loop" in str(error):
            raise UsageError(f"{loop} → {destination.name}") from None
        raise
    if not configuration.jumps:
        return (configuration,)
    *before, last = configuration.jumps
    return (*await route(parse_jump(last, tuple(before)), here, "", on_the_way), configuration)


async def _evaluate(destination: Destination, here: Here, command: str) -> SshConfiguration:
    """Evaluate the configuration for a command there, or for a jump host without one."""
    options = ["-o", "RemoteCommand=none", *([] if command else ["-W", "localhost:22"])]
    again = destination.arguments(here.file)
    asked = [*options, *again, *([command] if command else [])]
    text = await _ssh_g(*asked)
    if "%C" in text:
        hashed = re.search(r"(?m)^controlpath (.+)$", await _ssh_g("-oControlPath=%C", *asked))
        text = substitute(text, {"C": hashed[1] if hashed else "%C"})
    return SshConfiguration(destination.name, text, here, again)


async def _ssh_g(*arguments: str) -> str:
    try:
        ended = await run(["ssh", "-T", "-G", *arguments])
    except (FileNotFoundError, PermissionError) as error:  # a folder of PATH may be closed
        message = "OpenSSH's client (`ssh`, `ssh-keygen`) is not installed here"
        raise UsageError(message) from error
    if ended.status:
        raise UsageError("; ".join(ended.last_log_lines) or f"`ssh -G` {ending(ended.status)}")
    return ended.output


def parse_jump(text: str, before: tuple[str, ...] = ()) -> Destination:
    """Return the destination that a word of ProxyJump means.

    >>> parse_jump("me@[fd00::1]:2222")
    Destination(name='fd00::1', user='me', port=2222, jumps=())
    >>> parse_jump("ssh://jump:22").port
    22
    """
    text = text.removeprefix("ssh://").rstrip("/")
    user, _, address = text.rpartition("@")
    found = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+)(?::(\d+))?", address)
    if not found:
        return Destination(address, user or None, None, before)
    port = found[2] or found[4]
    return Destination(found[1] or found[3], user or None, int(port) if port else None, before)


def this_machine(file: str | None = None) -> Here:
    """Return this user and machine, for the tokens of a configuration."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = os.environ.get("USER", str(uid)), os.environ.get("HOME", "/")
    return Here(user, uid, home, socket.gethostname(), dict(os.environ), os.path.isfile, file)
