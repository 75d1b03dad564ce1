"""Decides whether to trust the key that a server shows, as OpenSSH's client does.

The decision waits for nothing in the key exchange: that is finished with whatever key was shown,
and before anything is sent to log in, `HostKeys.verify` looks the key up, runs the commands of
the configuration and asks the user. known_hosts files are read as `ssh-keygen -F` finds their
lines. Source: check_host_key in OpenSSH's sshconnect.c.
"""

import base64
import contextlib
import errno
import hashlib
import hmac
import logging
import os
import secrets
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path

import asyncssh
from asyncssh.public_key import SSHOpenSSHCertificate
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from gputui.errors import HostError
from gputui.fleet.addresses import is_loopback
from gputui.fleet.ssh.configuration import (
    CONFIGURATION_HINT,
    SSH_PORT,
    SshConfiguration,
    substitute,
)
from gputui.fleet.stages import Question, Stages
from gputui.model.frozen import frozen
from gputui.process.child import Ended, ending, run

logger = logging.getLogger(__name__)

HOST_CERTIFICATE = 2
"""The type of a host's certificate. Source: PROTOCOL.certkeys."""
BOUND_S = 10.0
AUTHORITY, REVOKED = "@cert-authority", "@revoked"
"""What may stand before the names of a line: how its key may be used."""


@frozen
class Entry:
    """A key that a line has for a server."""

    marker: str
    """"" for a key that is trusted."""
    kind: str
    """The key's type: `ssh-ed25519`."""
    blob: bytes
    """The public key as SSH sends it."""


async def find(paths: Iterable[str], name: str) -> list[Entry]:
    """Return the files' entries for a server, by its name as `known_name` writes it.

    Files that are not there are passed over, as by ssh. Raises ValueError or OSError where
    ssh-keygen fails: then a key must not count as unknown.
    """
    found: list[Entry] = []
    for path in paths:
        if Path(path).is_file() and os.access(path, os.R_OK):
            found += entries((await _keygen("-F", name, "-f", path)).output)
    return found


async def _keygen(*arguments: str) -> Ended:
    """Have ssh-keygen look something up; raises ValueError where it fails."""
    ended = await run(["ssh-keygen", *arguments], BOUND_S)
    if ended.status in (0, 1):
        return ended
    said = "; ".join(ended.last_log_lines) or f"took more than {BOUND_S:g} s"
    raise ValueError(f"ssh-keygen {' '.join(arguments)}: {said}")


def entries(output: str) -> Iterator[Entry]:
    """Yield the keys of known_hosts lines; those that cannot be read are passed over, as by ssh.

    >>> [entry.marker for entry in entries("# Host a found: line 1\\n@revoked * ssh-x QUJD")]
    ['@revoked']
    """
    for line in output.splitlines():
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not line.startswith("#") and marker in ("", AUTHORITY, REVOKED):
            with contextlib.suppress(ValueError):
                yield Entry(marker, words[1], base64.b64decode(words[2], validate=True))


def known_name(host: str, port: int) -> str:
    """Return a server as known_hosts writes it.

    >>> known_name("gpu-a", 22), known_name("gpu-a", 2222)
    ('gpu-a', '[gpu-a]:2222')
    """
    return host if port == SSH_PORT else f"[{host}]:{port}"


def hashed(name: str, salt: bytes) -> str:
    """Return a name as HashKnownHosts writes it."""
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def remember(path: str, names: Iterable[str], key: str, *, hash_names: bool) -> None:
    """Add a server's key to a file, as ssh does; raises OSError, and leaves no half a line."""
    if Path(path).parent.name == ".ssh":
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
    listed = [",".join(names)]
    if hash_names:
        listed = [hashed(name, secrets.token_bytes(20)) for name in names]
    lines = "".join(f"{each} {key}\n" for each in listed).encode()
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        if os.write(handle, lines) < len(lines):
            os.ftruncate(handle, size)  # half a key would be another key
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Verdict(Enum):
    """The verdict of the known keys on a server's key."""

    KNOWN = auto()
    NEW = auto()
    CHANGED = auto()
    REVOKED = auto()


@frozen
class Shown:
    """A server's key, and its certificate if it has one."""

    blob: bytes
    """As the server sent it."""
    key: asyncssh.SSHKey
    certificate: SSHOpenSSHCertificate | None = None

    @classmethod
    def of(cls, blob: bytes) -> "Shown":
        """Decode it; raises asyncssh.KeyImportError."""
        line = f"{kind_of(blob)} {base64.b64encode(blob).decode()}"
        if not kind_of(blob).endswith("-cert-v01@openssh.com"):
            return cls(blob, asyncssh.import_public_key(line))
        certificate = asyncssh.import_certificate(line)
        assert isinstance(certificate, SSHOpenSSHCertificate)
        return cls(blob, certificate.key, certificate)

    @property
    def signer(self) -> asyncssh.SSHKey | None:
        """The authority's key of a certificate."""
        return self.certificate.signing_key if self.certificate else None

    @property
    def fingerprint(self) -> str:
        """The key's kind and fingerprint: `ED25519 SHA256:…`."""
        kind = self.key.get_algorithm().removeprefix("ssh-").removeprefix("ecdsa-sha2-")
        return f"{kind.upper()} {self.key.get_fingerprint()}"


def judge(
    known: Iterable[Entry], key: asyncssh.SSHKey, authority: asyncssh.SSHKey | None = None
) -> Verdict:
    """Return the verdict of the known keys on a plain key, or on one certified by an authority."""
    known = list(known)
    shown = {each.public_data for each in (key, authority) if each}
    if any(entry.marker == REVOKED and entry.blob in shown for entry in known):
        return Verdict.REVOKED
    marker = AUTHORITY if authority else ""
    blobs = [entry.blob for entry in known if entry.marker == marker]
    if (authority or key).public_data in blobs:
        return Verdict.KNOWN
    return Verdict.CHANGED if blobs and not authority else Verdict.NEW


def preferred(known: Iterable[Entry], algorithms: Sequence[str]) -> Sequence[str]:
    """Return host-key algorithms in the order to ask for: kinds that are known come first.

    Source: order_hostkeyalgs in sshconnect2.c.

    >>> known = [Entry("", "ssh-rsa", b"")]
    >>> preferred(known, ["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519", "rsa-sha2-512"])
    ['rsa-sha2-512', 'ssh-ed25519-cert-v01@openssh.com', 'ssh-ed25519']
    """
    known = list(known)
    kinds = {entry.kind for entry in known if not entry.marker}
    authority = any(entry.marker == AUTHORITY for entry in known)
    if not algorithms or _plain(algorithms[0]) in kinds:
        return algorithms
    first = [
        each for each in algorithms if _plain(each) in kinds or (authority and "-cert-" in each)
    ]
    return [*first, *(each for each in algorithms if each not in first)]


class HostKeys:
    """The known keys of one server, looked up under HostKeyAlias, else HostName and the port."""

    def __init__(self, configuration: SshConfiguration, stages: Stages) -> None:
        self._files = configuration.known_hosts("userknownhostsfile")
        self._alias = configuration.word("hostkeyalias")
        self._configuration = configuration
        self._stages = stages
        self._strict = configuration.word("stricthostkeychecking")
        """As `ssh -G` prints it: true, false, ask or accept-new."""
        self._host = configuration.hostname.lower()
        self.name = self._alias or known_name(self._host, configuration.port)
        self._found: dict[str, list[Entry]] = {}
        """The files' entries, by name."""

    async def algorithms(self) -> Sequence[str]:
        """Return the host-key algorithms to ask for, best first."""
        known = await self._known(self.name, "ORDER")
        return preferred(known, self._configuration.names("hostkeyalgorithms"))

    async def verify(self, shown: Shown, address: str) -> bool:
        """Return whether a password may be sent to the server; raises HostError.

        `address` is where a direct connection leads, "" through others.
        """
        configuration, doubt = self._configuration, ""
        key, least_bits = shown.key.pyca_key, configuration.number("requiredrsasize", 1024)
        if isinstance(key, RSAPublicKey) and key.key_size < least_bits:
            raise self._stages.error(
                f"the host key of {self.name} is an RSA key of fewer than {least_bits} bits",
                "give the host a longer key; or set RequiredRSASize in ~/.ssh/config",
            )
        known = await self._known(self.name, "HOSTNAME", shown)
        verdict = judge(known, shown.key, shown.signer)
        if shown.certificate:
            if verdict is Verdict.KNOWN and not (doubt := self._doubt(shown)):
                return True
            if verdict is Verdict.NEW and await self._is_known_without_port(shown):
                return True
            if verdict is not Verdict.REVOKED:
                verdict = judge(known, shown.key)
        if verdict in (Verdict.CHANGED, Verdict.REVOKED):
            if self._strict == "false":
                return False
            raise self._changed(shown, verdict)
        by_address = await self._by_address(shown, address)
        names = [self._with_port(address)] if by_address is Verdict.NEW else []
        if verdict is Verdict.NEW and not await self._is_known_without_port(shown):
            await self._accept(shown, doubt)
            names = [self.name, *names]
        elif verdict is Verdict.NEW:
            names = []
        self._remember(shown, names)
        if by_address is Verdict.CHANGED:
            await self._accept_address(address)
        return True

    async def _known(self, name: str, why: str, shown: Shown | None = None) -> list[Entry]:
        """Return the entries for a name from the files and KnownHostsCommand; raises HostError."""
        try:
            if name not in self._found:
                files = (*self._files, *self._configuration.known_hosts("globalknownhostsfile"))
                self._found[name] = await find(files, name)
            if not self._configuration.word("knownhostscommand"):
                return self._found[name]
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(await self._by_command(name, why, shown))
                file.flush()
                return [*self._found[name], *await find([file.name], name)]
        except (OSError, ValueError) as error:
            reason = f"the SSH configuration: {error}"
            raise self._stages.error(reason, CONFIGURATION_HINT) from error

    async def _by_command(self, name: str, why: str, shown: Shown | None) -> str:
        """Return the output of KnownHostsCommand; raises ValueError. Source: ssh_config(5)."""
        tokens = {
            **self._configuration.tokens,
            "f": shown.key.get_fingerprint() if shown else "NONE",
            "H": name,
            "I": why,
            "K": base64.b64encode(shown.blob).decode() if shown else "NONE",
            "t": kind_of(shown.blob) if shown else "NONE",
        }
        words = shlex.split(self._configuration.word("knownhostscommand"))
        try:
            ended = await run([substitute(word, tokens) for word in words], BOUND_S)
        except OSError as error:
            raise ValueError(f"KnownHostsCommand {words[0]}: {error.strerror}") from error
        if ended.status == 0:
            return ended.output
        how = f"took more than {BOUND_S:g} s" if ended.status is None else ending(ended.status)
        raise ValueError(f"KnownHostsCommand {words[0]} {how}")

    def _doubt(self, shown: Shown) -> str:
        """Return why a certificate is not valid; "" for one that is."""
        assert shown.certificate
        allowed, used = self._configuration.names("casignaturealgorithms"), signed_with(shown)
        if allowed and used not in allowed:
            return f"its certificate is signed with {used}, which CASignatureAlgorithms forbids"
        try:
            shown.certificate.validate(HOST_CERTIFICATE, self._alias or self._host)
        except ValueError as error:
            return f"its certificate is not valid: {error}"
        return ""

    async def _is_known_without_port(self, shown: Shown) -> bool:
        """Return whether the bare name has the key: ssh takes it from there for any port."""
        if self._alias or self._configuration.port == SSH_PORT:
            return False
        known = await self._known(self._host, "HOSTNAME", shown)
        certified = shown.signer and judge(known, shown.key, shown.signer) is Verdict.KNOWN
        if certified and not self._doubt(shown):
            return True
        return judge(known, shown.key) is Verdict.KNOWN

    async def _by_address(self, shown: Shown, address: str) -> Verdict:
        """Return the verdict of CheckHostIP: KNOWN if it is off."""
        checked = self._configuration.is_on("checkhostip")
        if not checked or address in ("", self._host) or is_loopback(address):
            return Verdict.KNOWN
        return judge(await self._known(self._with_port(address), "ADDRESS", shown), shown.key)

    def _with_port(self, host: str) -> str:
        return known_name(host, self._configuration.port)

    def _changed(self, shown: Shown, verdict: Verdict) -> HostError:
        """Describe a key that is not the one on record, or is revoked."""
        if verdict is Verdict.REVOKED:
            reason = f"the host key of {self.name} is revoked: {shown.fingerprint}"
            return self._stages.error(reason)
        known = " or ".join(path for path in self._files if Path(path).exists()) or "the system"
        file = next(iter(self._files), "~/.ssh/known_hosts")
        forget = shlex.join(("ssh-keygen", "-R", self.name, "-f", file))
        return self._stages.error(
            f"the host key of {self.name} has changed: it is now {shown.fingerprint}, and {known} "
            "has another; this may be another machine that pretends to be it",
            f"if the host was installed again, forget its old key: {forget}",
        )

    async def _accept(self, shown: Shown, doubt: str) -> None:
        """Accept an unknown key as StrictHostKeyChecking says; raises HostError."""
        accepted = bool(self._files) and self._strict in ("false", "accept-new")
        if self._files and self._strict == "ask":
            accepted = await self._ask(
                f"The host key of {self.name} is not known{f' ({doubt})' if doubt else ''}. "
                f"Its fingerprint is {shown.fingerprint}. Trust it, and write it to "
                f"{self._files[0]}?"
            )
        if not accepted:
            reason = f"the host key of {self.name} is not known: {shown.fingerprint}"
            again = ("ssh", "-o", "StrictHostKeyChecking=accept-new", *self._configuration.again)
            raise self._stages.error(
                f"{reason}; {doubt}" if doubt else reason,
                f"if that is its fingerprint, accept it: {shlex.join((*again, 'true'))}",
            )

    async def _accept_address(self, address: str) -> None:
        """Accept a key that is not the one known for its address; raises HostError."""
        where = self._with_port(address)
        reason = f"the host key of {self.name} is not the one on record for its address {where}"
        if self._strict == "ask" and await self._ask(f"{reason}. Connect nevertheless?"):
            return
        if self._strict != "false":
            forget = f"ssh-keygen -R {shlex.quote(where)}"
            raise self._stages.error(
                reason, f"if the address has changed hands, forget it: {forget}"
            )

    async def _ask(self, text: str) -> bool:
        if not self._configuration.prompts:
            return False
        answer = await self._stages.ask(Question("host-key", text, False))
        return (answer or "").strip().lower() in ("yes", "y")

    def _remember(self, shown: Shown, names: Sequence[str]) -> None:
        """Add a key to known_hosts under these names; a failure is only logged, as by ssh."""
        if not names or not self._files:
            return
        path, hash_names = self._files[0], self._configuration.is_on("hashknownhosts")
        line = " ".join(shown.key.export_public_key().decode().split()[:2])
        try:
            remember(path, names, line, hash_names=hash_names)
        except OSError as error:
            logger.warning("the host key of %s is not remembered: %s: %s", self.name, path, error)


def signed_with(shown: Shown) -> str:
    """Return the algorithm of a certificate's signature, which follows its authority's key."""
    assert shown.signer
    key = shown.signer.public_data
    return kind_of(shown.blob.rpartition(len(key).to_bytes(4, "big") + key)[2][4:])


def kind_of(blob: bytes) -> str:
    """Return the type of a key, a certificate or a signature as SSH sends it."""
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")


def _plain(algorithm: str) -> str:
    """Return the kind of key that a host-key algorithm is for.

    >>> _plain("rsa-sha2-512-cert-v01@openssh.com"), _plain("ssh-ed25519")
    ('ssh-rsa', 'ssh-ed25519')
    """
    name = algorithm.replace("-cert-v01@openssh.com", "")
    return "ssh-rsa" if name.startswith("rsa-") else name
