"""KnownHostsCommand: a command of the user's that prints lines of known_hosts."""

import asyncio
import base64
import shlex

from gputui.fleet.ssh.configuration import SshConfiguration, substitute, tokens_of
from gputui.fleet.ssh.evaluation import this_machine
from gputui.fleet.ssh.host_keys import HostKeys
from gputui.fleet.ssh.known_hosts import known_name

BOUND_S = 10.0


async def lines_of(
    configuration: SshConfiguration, why: str, keys: HostKeys | None = None
) -> list[str]:
    """Return what it prints for a host; `why` is ORDER before a handshake, HOSTNAME for a key.

    Raises ValueError where it fails, as ssh then refuses the host. Source: ssh_config(5).
    """
    if not (command := configuration.host_keys.command):
        return []
    tokens = _tokens(configuration, why, keys)
    words = [substitute(word, tokens) for word in shlex.split(command)]
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise ValueError(f"KnownHostsCommand {words[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(BOUND_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ValueError(f"KnownHostsCommand {words[0]} took more than {BOUND_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(f"KnownHostsCommand {words[0]} failed ({process.returncode})")
    return output.decode("utf-8", "replace").splitlines()


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
