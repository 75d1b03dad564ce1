"""The SSH configuration where no ssh is installed: asyncssh's parser → the lines of `ssh -G`.

asyncssh passes over options that it does not know; every one that gputui acts on is taught to it
here, so that none is skipped. CanonicalizeHostname needs ssh itself, and is refused by name.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from asyncssh.config import ConfigParseError, SSHClientConfig

from gputui.fleet.ssh.configuration import Here, SshConfiguration, parse
from gputui.fleet.ssh.evaluation import ConfigurationError, Destination

SYSTEM_FILE = "/etc/ssh/ssh_config"

WORDS = (
    "AddressFamily BatchMode BindAddress BindInterface CanonicalizeHostname CASignatureAlgorithms "
    "ChallengeResponseAuthentication Ciphers ConnectTimeout GlobalKnownHostsFile "
    "GSSAPIAuthentication HashKnownHosts HostbasedAuthentication HostKeyAlgorithms HostKeyAlias "
    "IdentitiesOnly IdentityAgent KbdInteractiveAuthentication KexAlgorithms KnownHostsCommand "
    "MACs NoHostAuthenticationForLocalhost NumberOfPasswordPrompts PasswordAuthentication "
    "PKCS11Provider PreferredAuthentications ProxyCommand ProxyJump ProxyUseFdpass "
    "PubkeyAcceptedAlgorithms PubkeyAcceptedKeyTypes PubkeyAuthentication RequiredRSASize "
    "RevokedHostKeys StrictHostKeyChecking Tunnel UserKnownHostsFile"
)
"""Options whose first value counts."""

LINES = ("CertificateFile", "IdentityFile", "SendEnv", "SetEnv")
"""Options whose values add up."""

DEFAULTS = {
    "kexalgorithms": "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,"
    "ecdh-sha2-nistp384,ecdh-sha2-nistp521,diffie-hellman-group-exchange-sha256,"
    "diffie-hellman-group16-sha512,diffie-hellman-group18-sha512,diffie-hellman-group14-sha256",
    "ciphers": "chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,"
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com",
    "macs": "umac-64-etm@openssh.com,umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,"
    "hmac-sha2-512-etm@openssh.com,hmac-sha1-etm@openssh.com,umac-64@openssh.com,"
    "umac-128@openssh.com,hmac-sha2-256,hmac-sha2-512,hmac-sha1",
    "hostkeyalgorithms": "ssh-ed25519-cert-v01@openssh.com,"
    "ecdsa-sha2-nistp256-cert-v01@openssh.com,"
    "ecdsa-sha2-nistp384-cert-v01@openssh.com,ecdsa-sha2-nistp521-cert-v01@openssh.com,"
    "rsa-sha2-512-cert-v01@openssh.com,rsa-sha2-256-cert-v01@openssh.com,ssh-ed25519,"
    "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256",
}
"""What OpenSSH 9.2 allows where nothing is configured, less what asyncssh does not have."""
DEFAULTS["pubkeyacceptedalgorithms"] = DEFAULTS["hostkeyalgorithms"]
DEFAULTS["casignaturealgorithms"] = (
    "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,"
    "rsa-sha2-512,rsa-sha2-256"
)

IDENTITIES = ("id_rsa", "id_ecdsa", "id_ed25519")


def read(file: str | None, destination: Destination, here: Here) -> SshConfiguration:
    """Evaluate the configuration for a destination; raises ConfigurationError."""
    own = Path(file) if file else Path(here.home, ".ssh", "config")
    paths = [own] if file else [path for path in (own, Path(SYSTEM_FILE)) if path.is_file()]
    asked = (destination.user or (), destination.name, destination.port or ())
    try:
        config = _Config.load(None, paths, False, False, False, here.user, *asked)
        if config.has_match_final():
            config = _Config.load(config, paths, False, False, True, here.user, *asked)
    except (OSError, ConfigParseError, UnicodeDecodeError) as error:
        raise ConfigurationError(str(error)) from error
    lines = [
        f"{option} {value}"
        for option, default in _defaults(here).items()
        for value in _values(config.get(option), default)
    ]
    jumps = ",".join(destination.jumps)
    lines += [f"{name.lower()} {config.get(name)}" for name in ("Hostname", "Port", "User")]
    lines = [line for line in lines if not line.endswith(" None")]
    canonical = next(iter(_values(config.get("canonicalizehostname"), ["no"])))
    if canonical not in ("no", "none"):
        raise ConfigurationError(f"CanonicalizeHostname {canonical} needs an ssh installed here")
    if jumps:
        lines.insert(0, f"proxyjump {jumps}")
    return parse("\n".join(lines), destination.name, here)


def _keep(config: SSHClientConfig, option: str, args: list[str]) -> None:
    """Keep all words of an option."""
    config._options.setdefault(option, []).append(" ".join(args))  # type: ignore[attr-defined]
    args.clear()


class _Config(SSHClientConfig):
    """asyncssh's parser, keeping the words of every option that gputui acts on."""

    _percent_expand: ClassVar[set[str]] = set()  # type: ignore[misc]
    _handlers: ClassVar = {  # type: ignore[misc]
        **{
            name: SSHClientConfig._handlers[name]
            for name in ("host", "match", "include", "hostname", "port", "user", "tag")
        },
        **{name.lower(): (name.lower(), _keep) for name in (*WORDS.split(), *LINES)},
    }


def _values(kept: object, default: Iterable[str]) -> Iterable[str]:
    """Return the values of an option: those that were kept, else its default."""
    values = list(dict.fromkeys(kept)) if isinstance(kept, list) else []
    base = next(iter(default), "")
    if values and base and values[0][:1] in ("+", "-", "^"):
        return [_adjusted(values[0], base)]
    return values or default


def _adjusted(change: str, base: str) -> str:
    """Return a list of algorithms with one change to it.

    >>> _adjusted("+c", "a,b"), _adjusted("-a", "a,b"), _adjusted("^b", "a,b")
    ('a,b,c', 'b', 'b,a')
    """
    names, named = base.split(","), change[1:].split(",")
    rest = [name for name in names if name not in named]
    if change[0] == "-":
        return ",".join(rest)
    return ",".join([*named, *rest] if change[0] == "^" else [*names, *(set(named) - set(names))])


def _defaults(here: Here) -> dict[str, tuple[str, ...]]:
    """Return option → what ssh takes where nothing is configured."""
    found: dict[str, tuple[str, ...]] = {name.lower(): () for name in (*WORDS.split(), *LINES)}
    found |= {option: (value,) for option, value in DEFAULTS.items()}
    folder = f"{here.home}/.ssh"
    found["identityfile"] = tuple(f"{folder}/{name}" for name in IDENTITIES)
    found["userknownhostsfile"] = (f"{folder}/known_hosts {folder}/known_hosts2",)
    found["globalknownhostsfile"] = ("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",)
    return found
