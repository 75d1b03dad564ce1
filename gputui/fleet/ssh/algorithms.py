"""What ssh allows of algorithms → what asyncssh is given: nothing that ssh itself would refuse."""

from collections.abc import Iterable, Sequence
from functools import cache

from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from gputui.fleet.ssh.configuration import Algorithms
from gputui.fleet.ssh.host_keys import HostKeys

WITHOUT_MAC = ("chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


def options(allowed: Algorithms, keys: HostKeys) -> dict[str, Sequence[str]]:
    """Return asyncssh's options; raises ValueError, by name, where no allowed one is available."""
    chosen = {
        "kex_algs": _had("KexAlgorithms", allowed.kex, _names(get_kex_algs)),
        "encryption_algs": _had("Ciphers", allowed.ciphers, _names(get_encryption_algs)),
        "mac_algs": _had("MACs", allowed.macs, _names(get_mac_algs)),
        "server_host_key_algs": _had(
            "HostKeyAlgorithms",
            keys.preferred(allowed.host_keys),
            _names(get_public_key_algs) | _names(get_certificate_algs),
        ),
        "signature_algs": _had(
            "PubkeyAcceptedAlgorithms", allowed.public_keys, _names(get_public_key_algs)
        ),
    }
    return {option: names for option, names in chosen.items() if names}


@cache
def _names(listed: object) -> frozenset[str]:
    """Return what one of asyncssh's lists has."""
    assert callable(listed)
    return frozenset(name.decode() for name in listed())


def _had(option: str, allowed: Iterable[str], had: frozenset[str]) -> tuple[str, ...]:
    """Return what is both allowed and available; () where the configuration does not say."""
    allowed = tuple(allowed)
    both = tuple(name for name in allowed if name in had)
    if allowed and not both:
        raise ValueError(f"{option} allows only {','.join(allowed)}, which gputui does not have")
    return both
