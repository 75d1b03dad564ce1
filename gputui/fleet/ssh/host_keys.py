"""Compare a server's key with the known ones, as OpenSSH does, and remember a new one.

A key is looked up under HostKeyAlias, else under HostName and the port; never under the address
that the name resolved to. The answer is wanted in the middle of a handshake, where nothing can
be waited for: what only a command or a person can say is asked afterwards, and the connection
made again (`settle` in `connector.py`).
"""

import base64
import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path

import asyncssh

from gputui.fleet.ssh.configuration import SSH_PORT, HostKeyPolicy, SshConfiguration, Strict
from gputui.fleet.ssh.known_hosts import Entry, Line, Marker, entries, hashed, known_name, parse

KRL_MAGIC = b"SSHKRL\n\0"
CERTIFICATE = "-cert-v01@openssh.com"


class KeyVerdict(Enum):
    """The verdict on a key that a server showed."""

    KNOWN = auto()
    NEW = auto()
    CHANGED = auto()
    REVOKED = auto()
    WEAK = auto()
    """An RSA key of fewer bits than RequiredRSASize."""
    UNCHECKED = auto()
    """ssh-keygen must say first whether it is revoked."""


@dataclass(slots=True)
class HostKeys:
    """One server's known keys, and the one that it offered."""

    policy: HostKeyPolicy
    name: str
    """The server as known_hosts writes it: `gpu-a`, `[gpu-a]:2222`."""
    known: tuple[Entry, ...]
    without_port: tuple[Entry, ...]
    """What is known under the bare name: ssh takes a key from there for another port, too."""
    revoked: frozenset[bytes] = frozenset()
    """The keys of RevokedHostKeys."""
    revocation_list: str = ""
    """RevokedHostKeys where that is a binary list (KRL), which ssh-keygen is asked about."""
    authorities: tuple[str, ...] = ()
    """CASignatureAlgorithms; () allows all."""
    shown: bytes = b""
    """The key or certificate that the server showed, as it sent it."""
    cleared: set[bytes] = field(default_factory=set)
    """What the revocation list does not have."""
    verdict: KeyVerdict | None = None
    """What became of the key that the server showed."""
    offered: asyncssh.SSHKey | None = None
    """That key; the authority's where a certificate was shown."""
    accepted: set[bytes] = field(default_factory=set)
    """Keys that the user, or StrictHostKeyChecking, has accepted for this connection."""
    overlooked: bool = False
    """Whether StrictHostKeyChecking=no has taken a key that is not the known one."""
    doubt: str = ""
    """Why the certificate that the server showed first was not taken."""
    authority_offered: bool = False
    """Whether the server showed a certificate."""
    without_certificates: bool = False
    """Whether to ask for plain keys only: an unknown authority has signed this server's."""

    @classmethod
    def of(cls, configuration: SshConfiguration, more: Iterable[str] = ()) -> "HostKeys":
        """Read the known keys from the files, and from `more` lines, such as KnownHostsCommand's.

        Raises OSError where RevokedHostKeys cannot be read.
        """
        policy, alias = configuration.host_keys, configuration.host_keys.alias
        host = configuration.hostname.lower()
        name = alias or known_name(host, configuration.port)
        lines = [*parse(more), *_lines((*policy.user_files, *policy.system_files))]
        bare = () if alias or configuration.port == SSH_PORT else tuple(entries(lines, host))
        data = Path(policy.revoked).read_bytes() if policy.revoked else b""
        is_list = data.startswith(KRL_MAGIC)
        return cls(
            policy,
            name,
            tuple(entries(lines, name)),
            bare,
            frozenset() if is_list else _revoked(data),
            policy.revoked if is_list else "",
            configuration.algorithms.authorities,
        )

    @property
    def has_authority(self) -> bool:
        """Whether a certificate of this server could be trusted, and is to be asked for."""
        known = any(entry.marker is Marker.AUTHORITY for entry in self.known)
        return known and not self.without_certificates

    def preferred(self, algorithms: Iterable[str]) -> tuple[str, ...]:
        """Return host-key algorithms in the order to ask for: kinds that are known come first.

        Certificates are asked for only where an authority is known for this server.
        """
        kinds = {entry.kind for entry in self.known if entry.marker is Marker.TRUSTED}
        certificates = self.has_authority
        wanted = [name for name in algorithms if certificates or not name.endswith(CERTIFICATE)]
        return tuple(sorted(wanted, key=lambda name: not _is_of(name, kinds)))

    def judge(self, key: asyncssh.SSHKey) -> KeyVerdict:
        """Return the verdict on a plain key, and keep both."""
        self.offered, self.authority_offered, self.shown = key, False, key.public_data
        self.verdict = self._judge(key.public_data)
        return self.verdict

    def judge_authority(self, key: asyncssh.SSHKey) -> KeyVerdict:
        """Return the verdict on the authority that signed the certificate in `shown`."""
        self.offered, self.authority_offered, blob = key, True, key.public_data
        if self.authorities and (algorithm := self._signed_with(blob)) not in self.authorities:
            self.verdict = KeyVerdict.NEW
            self.doubt = (
                f"its certificate is signed with {algorithm}, which CASignatureAlgorithms "
                "does not allow"
            )
        elif self._is_unchecked():
            self.verdict = KeyVerdict.UNCHECKED
        elif self._is_revoked(blob):
            self.verdict = KeyVerdict.REVOKED
        elif (Marker.AUTHORITY, blob) in {(entry.marker, entry.blob) for entry in self.known}:
            self.verdict = KeyVerdict.KNOWN
        else:
            self.verdict = KeyVerdict.NEW
        return self.verdict

    def _judge(self, blob: bytes) -> KeyVerdict:
        if 0 < _rsa_bits(blob) < self.policy.required_rsa_bits:
            return KeyVerdict.WEAK
        if self._is_unchecked():
            return KeyVerdict.UNCHECKED
        if blob in self.accepted:
            return KeyVerdict.KNOWN
        if self._is_revoked(blob):
            return KeyVerdict.REVOKED
        known = [entry.blob for entry in self.known if entry.marker is Marker.TRUSTED]
        if blob in known:
            return KeyVerdict.KNOWN
        if known or self.accepted:
            return KeyVerdict.CHANGED
        bare = [entry.blob for entry in self.without_port if entry.marker is Marker.TRUSTED]
        return KeyVerdict.KNOWN if blob in bare else KeyVerdict.NEW

    @property
    def may_be_overlooked(self) -> bool:
        """Whether StrictHostKeyChecking=no takes the offered key though it is not the known one.

        That holds for a changed key and one marked @revoked; nothing overrides RevokedHostKeys.
        """
        marked = self.offered is not None and self.offered.public_data not in self.revoked
        takes = self.verdict is KeyVerdict.CHANGED or (
            self.verdict is KeyVerdict.REVOKED and marked
        )
        return self.policy.strict is Strict.NO and takes

    def _signed_with(self, key: bytes) -> str:
        """Return the algorithm of the signature, which in `shown` follows its authority's key."""
        signature = self.shown.rpartition(len(key).to_bytes(4, "big") + key)[2][4:]
        return signature[4 : 4 + int.from_bytes(signature[:4], "big")].decode("ascii", "replace")

    def check(self, *, is_revoked: bool) -> None:
        """Take note of what the revocation list says of what was shown."""
        assert self.offered
        if is_revoked:
            self.revoked |= {self.offered.public_data}
            self.verdict = KeyVerdict.REVOKED
        else:
            self.cleared.add(self.shown)

    def _is_unchecked(self) -> bool:
        return bool(self.revocation_list) and self.shown not in self.cleared

    def _is_revoked(self, blob: bytes) -> bool:
        marked = {entry.blob for entry in self.known if entry.marker is Marker.REVOKED}
        return blob in self.revoked or blob in marked

    def for_asyncssh(self, *_: object) -> tuple[list[asyncssh.SSHKey], ...]:
        """Return known hosts as asyncssh wants them: none, so that it asks; and the revoked ones.

        It alone sees the key inside a certificate.
        """
        marked = [entry for entry in self.known if entry.marker is Marker.REVOKED]
        revoked = [_key(entry) for entry in marked] if self.has_authority else []
        return [], [], revoked, [], [], [], []

    def take(self, lines: Iterable[str]) -> bool:
        """Add lines of KnownHostsCommand; returns whether they have the offered key."""
        assert self.offered
        self.known = (*self.known, *entries(parse(lines), self.name))
        return self._judge(self.offered.public_data) is KeyVerdict.KNOWN

    def accept(self) -> None:
        """Take the offered key as known for this connection."""
        assert self.offered
        self.accepted.add(self.offered.public_data)

    def remember(self) -> None:
        """Write the offered key into the first user file, as ssh does; raises OSError."""
        assert self.offered
        if not self.policy.user_files:
            return
        path = Path(self.policy.user_files[0])
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = self.offered.export_public_key().decode().split()[:2]
        name = hashed(self.name, secrets.token_bytes(20)) if self.policy.hash_names else self.name
        line = " ".join((name, *key)) + "\n"
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = "\n" + line
            if os.write(handle, line.encode()) < len(line):
                os.ftruncate(handle, size)  # half a key would be another key
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fingerprint(self) -> str:
        """Return the offered key's kind and fingerprint: `ED25519 SHA256:…`."""
        assert self.offered
        kind = self.offered.get_algorithm().removeprefix("ssh-").removeprefix("ecdsa-sha2-")
        return f"{kind.upper()} {self.offered.get_fingerprint()}"

    @property
    def strict(self) -> Strict:
        """The policy for an unknown key."""
        return self.policy.strict


def _key(entry: Entry) -> asyncssh.SSHKey:
    return asyncssh.import_public_key(f"{entry.kind} {base64.b64encode(entry.blob).decode()}")


def _is_of(algorithm: str, kinds: Iterable[str]) -> bool:
    """Return whether a host-key algorithm is one for keys of these kinds.

    >>> _is_of("rsa-sha2-512", ["ssh-rsa"]), _is_of("ssh-ed25519", ["ssh-rsa"])
    (True, False)
    """
    return algorithm in kinds or (algorithm.startswith("rsa-") and "ssh-rsa" in kinds)


def _revoked(data: bytes) -> frozenset[bytes]:
    """Return the keys of a RevokedHostKeys file with a public key on each line."""
    lines = data.decode("utf-8", "replace").splitlines()
    return frozenset(entry.blob for entry in entries(parse(f"* {line}" for line in lines), "x"))


def _rsa_bits(blob: bytes) -> int:
    """Return the size of an RSA key as SSH sends it; 0 for another kind. Source: RFC 4253, 6.6."""
    parts = []
    while len(blob) >= 4:
        end = 4 + int.from_bytes(blob[:4], "big")
        parts.append(blob[4:end])
        blob = blob[end:]
    if len(parts) < 3 or parts[0] != b"ssh-rsa":
        return 0
    return int.from_bytes(parts[2], "big").bit_length()


def _lines(paths: Iterable[str]) -> Iterator[Line]:
    for path in paths:
        with contextlib.suppress(OSError):
            status = Path(path).stat()
            yield from _read(path, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(path: str, *_state: int) -> tuple[Line, ...]:
    """Return the lines of a file, which all hosts of a fleet have in common."""
    return parse(Path(path).read_text(encoding="utf-8", errors="replace").splitlines())
