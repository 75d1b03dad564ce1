"""The hosts on the way to a host: its jump hosts, and theirs, as ssh would go through them."""

import re

from gputui.fleet.ssh.configuration import SshConfiguration
from gputui.fleet.ssh.evaluation import ConfigurationError, Destination, Evaluator

Route = tuple[SshConfiguration, ...]
"""The hosts on the way, the one that is meant last."""


async def resolve_route(
    evaluator: Evaluator, destination: Destination, behind: tuple[Destination, ...] = ()
) -> Route:
    """Return the configurations of all hosts on the way, first to last.

    Of several jump hosts ssh takes the last one with those before it as its own: `ssh -J a,b c`
    is `ssh -J a b`, and then `c`. Raises ConfigurationError, for a loop too.
    """
    if destination in behind:
        names = [each.name for each in (*behind, destination)]
        raise ConfigurationError(f"ProxyJump goes in a loop: {' → '.join(names)}")
    try:
        configuration = await evaluator.evaluate(destination)
    except ConfigurationError as error:
        if "jumphost loop" in str(error):
            names = [each.name for each in (*behind, destination, destination)]
            error = ConfigurationError(f"ProxyJump goes in a loop: {' → '.join(names)}")
        raise error from None
    if not configuration.jumps:
        return (configuration,)
    *before, last = configuration.jumps
    jump = parse_jump(last, tuple(before))
    return (*await resolve_route(evaluator, jump, (*behind, destination)), configuration)


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
