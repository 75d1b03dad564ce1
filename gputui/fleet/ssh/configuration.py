"""One host's part of the SSH configuration, as `ssh -G` prints it → one frozen value. Pure.

ssh evaluates its own files (`evaluation.py`): every Match, Include and token that it knows. What
is read here is all that gputui acts on. An option that would change who is reached or trusted,
and that gputui cannot honour, is named by `not_honoured`; forwardings, terminals and commands
that a configuration asks for are meant for a person's own session, and are not applied.
"""

import re
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha1

from gputui.fleet.addresses import bracketed

SSH_PORT = 22


class Strict(StrEnum):
    """StrictHostKeyChecking: what becomes of a host key that is not known."""

    YES = "yes"
    ASK = "ask"
    ACCEPT_NEW = "accept-new"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Here:
    """This user and machine, to which tokens and paths of a configuration refer."""

    user: str
    uid: int
    home: str
    """The home of the user's passwd entry, which ssh uses in place of $HOME."""
    hostname: str
    environ: Mapping[str, str]
    is_file: Callable[[str], bool] = lambda path: False


@dataclass(frozen=True, slots=True)
class HostKeyPolicy:
    """The rules for accepting host keys."""

    alias: str
    strict: Strict
    user_files: tuple[str, ...]
    system_files: tuple[str, ...]
    revoked: str
    """RevokedHostKeys: a file of keys, "" for none."""
    check_address: bool
    """CheckHostIP."""
    command: str
    """KnownHostsCommand, its tokens left in."""
    tokens: Mapping[str, str] = field(compare=False)
    """Those that depend on the host alone."""
    hash_names: bool
    not_for_localhost: bool
    """NoHostAuthenticationForLocalhost."""
    required_rsa_bits: int


@dataclass(frozen=True, slots=True)
class Algorithms:
    """The permitted algorithms, best first, by the names of RFC 4253."""

    kex: tuple[str, ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    host_keys: tuple[str, ...]
    public_keys: tuple[str, ...]
    authorities: tuple[str, ...]
    """CASignatureAlgorithms: how a certificate may be signed."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """The rules for logging in."""

    public_key: bool
    password: bool
    keyboard_interactive: bool
    gssapi: bool
    host_based: bool
    """HostbasedAuthentication, which gputui does not have: a login that fails says so."""
    preferred: tuple[str, ...]
    """PreferredAuthentications; () is ssh's own order."""
    prompts: int
    """NumberOfPasswordPrompts; 0 with BatchMode, which never asks."""
    identity_files: tuple[str, ...]
    certificate_files: tuple[str, ...]
    identities_only: bool
    agent: str
    """The ssh-agent's socket; "" for none."""


@dataclass(frozen=True, slots=True)
class SshConfiguration:
    """All that the SSH configuration says of one host."""

    name: str
    """As it was asked for."""
    hostname: str
    port: int
    user: str
    family: socket.AddressFamily
    bind_address: str
    bind_interface: str
    jumps: tuple[str, ...]
    """ProxyJump, first to last, each `user@host:port` or an ssh:// URI."""
    proxy_command: str
    control_path: str
    """ControlPath: where an ssh of the user's may hold a connection open."""
    connect_timeout_s: float | None
    environment: tuple[tuple[str, str], ...]
    """SetEnv and SendEnv."""
    host_keys: HostKeyPolicy
    algorithms: Algorithms
    authentication: Authentication
    not_honoured: tuple[str, ...]
    """Options that change who is reached or trusted, and that gputui does not have."""

    @property
    def where(self) -> str:
        """`address:port`, an IPv6 address in brackets."""
        return f"{bracketed(self.hostname)}:{self.port}"

    @property
    def login_name(self) -> str:
        """`user@name`."""
        return f"{self.user}@{self.name}"


def parse(text: str, name: str, here: Here) -> SshConfiguration:
    """Parse the output of `ssh -G` for a name; raises ValueError.

    >>> here = Here("me", 1000, "/home/me", "laptop", {})
    >>> found = parse("hostname 10.0.0.5\\nport 2222\\nuser al\\nproxyjump a,b:22", "gpu-a", here)
    >>> found.where, found.login_name, found.jumps
    ('10.0.0.5:2222', 'al@gpu-a', ('a', 'b:22'))
    """
    said = _Said(text)
    hostname, port = said.word("hostname", name), int(said.word("port", str(SSH_PORT)))
    user, jump = said.word("user", here.user), said.word("proxyjump")
    tokens = tokens_of(here, name, hostname, port, user, said.word("hostkeyalias"), jump)
    return SshConfiguration(
        name=name,
        hostname=hostname,
        port=port,
        user=user,
        family=FAMILIES.get(said.word("addressfamily"), socket.AF_UNSPEC),
        bind_address=said.word("bindaddress"),
        bind_interface=said.word("bindinterface"),
        jumps=tuple(filter(None, _command(jump, tokens).split(","))),
        proxy_command=_command(said.word("proxycommand"), tokens),
        control_path=_optional(said.word("controlpath")),
        connect_timeout_s=_seconds(said.word("connecttimeout")),
        environment=(*_sent(said, here), *_set(said)),
        host_keys=_host_keys(said, tokens, here),
        algorithms=_algorithms(said),
        authentication=_authentication(said, tokens, here),
        not_honoured=tuple(_not_honoured(said)),
    )


def _host_keys(said: "_Said", tokens: Mapping[str, str], here: Here) -> HostKeyPolicy:
    def paths(option: str) -> tuple[str, ...]:
        def is_there(path: str) -> bool:
            return here.is_file(expand(path, tokens, here))

        return _paths(_separate(said.word(option), is_there), tokens, here)

    return HostKeyPolicy(
        alias=said.word("hostkeyalias"),
        strict=STRICT.get(said.word("stricthostkeychecking"), Strict.ASK),
        user_files=paths("userknownhostsfile"),
        system_files=paths("globalknownhostsfile"),
        revoked="".join(_paths([said.word("revokedhostkeys")], tokens, here)),
        check_address=said.yes("checkhostip"),
        tokens=tokens,
        command=_environment(_optional(said.word("knownhostscommand")), here),
        hash_names=said.yes("hashknownhosts"),
        not_for_localhost=said.yes("nohostauthenticationforlocalhost"),
        required_rsa_bits=int(said.word("requiredrsasize", "1024")),
    )


def _algorithms(said: "_Said") -> Algorithms:
    return Algorithms(
        kex=said.names("kexalgorithms"),
        ciphers=said.names("ciphers"),
        macs=said.names("macs"),
        host_keys=said.names("hostkeyalgorithms"),
        public_keys=said.names("pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"),
        authorities=said.names("casignaturealgorithms"),
    )


def _authentication(said: "_Said", tokens: Mapping[str, str], here: Here) -> Authentication:
    return Authentication(
        public_key=said.word("pubkeyauthentication", "yes") not in NO,
        password=said.yes("passwordauthentication", "yes"),
        keyboard_interactive=said.yes(
            "kbdinteractiveauthentication", "yes", older="challengeresponseauthentication"
        ),
        gssapi=said.yes("gssapiauthentication"),
        host_based=said.yes("hostbasedauthentication"),
        preferred=said.names("preferredauthentications"),
        prompts=0 if said.yes("batchmode") else int(said.word("numberofpasswordprompts", "3")),
        identity_files=_paths(said.lines("identityfile"), tokens, here),
        certificate_files=_paths(said.lines("certificatefile"), tokens, here),
        identities_only=said.yes("identitiesonly"),
        agent=_agent(said.word("identityagent", "SSH_AUTH_SOCK"), tokens, here),
    )


FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
NO = ("no", "false", "none")
STRICT = {
    "yes": Strict.YES,
    "true": Strict.YES,
    "no": Strict.NO,
    "false": Strict.NO,
    "off": Strict.NO,
    "accept-new": Strict.ACCEPT_NEW,
}


class _Said:
    """The lines of `ssh -G`, by option."""

    def __init__(self, text: str) -> None:
        self._lines: defaultdict[str, list[str]] = defaultdict(list)
        for line in text.splitlines():
            option, _, value = line.partition(" ")
            self._lines[option.lower()].append(value.strip())

    def lines(self, option: str) -> Sequence[str]:
        return self._lines.get(option, ())

    def word(self, option: str, default: str = "") -> str:
        lines = self.lines(option)
        return lines[0] if lines else default

    def yes(self, option: str, default: str = "no", *, older: str = "") -> bool:
        """Return whether an option is on, by its newer name or its older one."""
        return self.word(option, self.word(older, default)) in ("yes", "true")

    def names(self, option: str, older: str = "") -> tuple[str, ...]:
        return tuple(filter(None, self.word(option, self.word(older)).split(",")))


def _not_honoured(said: _Said) -> Iterator[str]:
    """Yield the options, with their values, that a connection of gputui would not follow."""
    if said.yes("proxyusefdpass") and _optional(said.word("proxycommand")):
        yield "ProxyUseFdpass yes"
    provider = _optional(said.word("pkcs11provider"))
    if provider:
        yield f"PKCS11Provider {provider}"
    if said.word("tunnel", "no") not in NO:
        yield f"Tunnel {said.word('tunnel')}"


def tokens_of(
    here: Here, name: str, hostname: str, port: int, user: str, alias: str, jump: str
) -> dict[str, str]:
    """Return %-token → value. Source: ssh_config(5), TOKENS."""
    connection = f"{here.hostname}{hostname}{port}{user}"
    return {
        "%": "%",
        "C": sha1(connection.encode()).hexdigest(),
        "d": here.home,
        "h": hostname,
        "i": str(here.uid),
        "j": jump,
        "k": alias or name,
        "L": here.hostname.partition(".")[0],
        "l": here.hostname,
        "n": name,
        "p": str(port),
        "r": user,
        "u": here.user,
    }


def expand(text: str, tokens: Mapping[str, str], here: Here) -> str:
    """Return a path with its tokens, variables and `~` replaced.

    >>> here = Here("me", 1000, "/home/me", "laptop", {"DIR": "/keys"})
    >>> expand("~/.ssh/%r", {"r": "alice"}, here), expand("${DIR}/%r", {"r": "bob"}, here)
    ('/home/me/.ssh/alice', '/keys/bob')
    """
    text = _environment(substitute(text, tokens), here)
    if text == "~" or text.startswith("~/"):
        text = here.home + text[1:]
    return text


def _paths(texts: Iterable[str], tokens: Mapping[str, str], here: Here) -> tuple[str, ...]:
    """Return the paths that are given, expanded; `none` is no path."""
    given = (text for text in texts if text.lower() not in ("", "none"))
    return tuple(filter(None, (expand(text, tokens, here) for text in given)))


def substitute(text: str, tokens: Mapping[str, str]) -> str:
    """Return a text with its %-tokens replaced; one that is not known stays.

    >>> substitute("%h:%p 100%%", {"h": "gpu-a", "p": "22", "%": "%"})
    'gpu-a:22 100%'
    """
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _environment(text: str, here: Here) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: here.environ.get(found[1], ""), text)


def _agent(text: str, tokens: Mapping[str, str], here: Here) -> str:
    """Return the socket that IdentityAgent means."""
    if text == "SSH_AUTH_SOCK":
        return here.environ.get("SSH_AUTH_SOCK", "")
    if re.fullmatch(r"\$\w+", text):
        return here.environ.get(text[1:], "")
    return "" if text.lower() == "none" else expand(text, tokens, here)


def _command(text: str, tokens: Mapping[str, str]) -> str:
    return substitute(_optional(text), {key: tokens[key] for key in "%hnpr"})


def _optional(text: str) -> str:
    return "" if text.lower() == "none" else text


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


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and int(text) else None


def _sent(said: _Said, here: Here) -> Iterator[tuple[str, str]]:
    """Yield the variables that SendEnv's patterns choose, `-` taking some out again."""
    chosen: dict[str, str] = {}
    for pattern in said.lines("sendenv"):
        matches = _pattern(pattern.lstrip("-"))
        for name, value in here.environ.items():
            if matches.fullmatch(name):
                chosen[name] = value
        if pattern.startswith("-"):
            chosen = {name: chosen[name] for name in chosen if not matches.fullmatch(name)}
    yield from chosen.items()


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."))


def _set(said: _Said) -> Iterator[tuple[str, str]]:
    for line in said.lines("setenv"):
        name, equals, value = line.partition("=")
        if equals:
            yield name, value
