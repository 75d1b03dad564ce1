"""Ask commands about host keys: KnownHostsCommand, and ssh-keygen about revoked ones."""

import base64
import shlex
import tempfile

from gputui.fleet.ssh.configuration import SshConfiguration, substitute, tokens_of
from gputui.fleet.ssh.evaluation import this_machine
from gputui.fleet.ssh.host_keys import HostKeys
from gputui.fleet.ssh.known_hosts import known_name
from gputui.process.child import ending, run

BOUND_S = 10.0


async def lines_of(
    configuration: SshConfiguration, why: str, keys: HostKeys | None = None
) -> list[str]:
    """Run KnownHostsCommand for a host; `why` is ORDER before a handshake, HOSTNAME for a key.

    Raises ValueError where it fails, as ssh then refuses the host. Source: ssh_config(5).
    """
    if not (command := configuration.host_keys.command):
        return []
    tokens = _tokens(configuration, why, keys)
    words = [substitute(word, tokens) for word in shlex.split(command)]
    try:
        ended = await run(words, BOUND_S)
    except OSError as error:
        raise ValueError(f"KnownHostsCommand {words[0]}: {error.strerror}") from error
    if ended.status is None:
        raise ValueError(f"KnownHostsCommand {words[0]} took more than {BOUND_S:g} s")
    if ended.status:
        raise ValueError(f"KnownHostsCommand {words[0]} {ending(ended.status)}")
    return ended.output.splitlines()


async def is_revoked(path: str, shown: bytes) -> bool:
    """Ask ssh-keygen whether a revocation list (KRL) has a key or certificate.

    Raises ValueError where it cannot say, as ssh then refuses the host. Source: ssh-keygen(1), -Q.
    """
    kind = shown[4 : 4 + int.from_bytes(shown[:4], "big")].decode("ascii", "replace")
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as key:
        key.write(f"{kind} {base64.b64encode(shown).decode()}\n")
        key.flush()
        try:
            ended = await run(["ssh-keygen", "-Q", "-f", path, key.name], BOUND_S)
        except OSError as error:
            raise ValueError(f"RevokedHostKeys {path}: ssh-keygen: {error.strerror}") from error
    if ended.status in (0, 1):
        return ended.status == 1
    said = "; ".join(ended.last_log_lines) or f"ssh-keygen took more than {BOUND_S:g} s"
    raise ValueError(f"RevokedHostKeys {path}: {said}")


def _tokens(configuration: SshConfiguration, why: str, keys: HostKeys | None) -> dict[str, str]:
    """Return %-token → value."""
    key = keys.offered if keys else None
    alias = configuration.host_keys.alias
    common = tokens_of(
        this_machine(),
        configuration.name,
        configuration.hostname,
        configuration.port,
        configuration.user,
        alias,
        ",".join(configuration.jumps),
    )
    return {
        **common,
        "f": key.get_fingerprint() if key else "NONE",
        "H": alias or known_name(configuration.hostname, configuration.port),
        "I": why,
        "K": base64.b64encode(key.public_data).decode() if key else "NONE",
        "t": key.get_algorithm() if key else "NONE",
    }
