"""Clusters whose heads run on another machine: `user@login:NAME`, and `up --on user@login`."""

import asyncio
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gputui.cli.asking import ask_here
from gputui.errors import ExitCode, HeadError
from gputui.model.hosts import parse_hosts
from gputui.model.plain_text import safe, safe_lines
from gputui.protocol.connection_file import find_cluster

if TYPE_CHECKING:
    from gputui.client.remote_head import RemoteHead


def remote_head(given: str | None) -> "RemoteHead | None":
    """Return the head that `user@login:NAME` means; None for a cluster of this machine.

    The user at this terminal answers what SSH asks.
    """
    if given is None or not re.search("[@:]", given) or find_cluster(given):
        return None
    from gputui.client.remote_head import RemoteHead, RemoteName

    name = RemoteName.parse(given)
    return RemoteHead(name, ask_here) if name else None


def remote_machine(given: str) -> "RemoteHead":
    """Return a machine with heads, `login`, `user@login` or with the name of one."""
    from gputui.client.remote_head import RemoteHead, RemoteName

    return RemoteHead(RemoteName.parse(given) or RemoteName(given, ""), ask_here)


async def start_there(
    login: str, arguments: Mapping[str, Any], hosts_text: str, gputui: str = ""
) -> int:
    """Start a cluster on another machine, with the gputui that is installed there.

    Raises HeadError where that machine has none.
    """
    from gputui.client.remote_head import RemoteHead, RemoteName

    head = RemoteHead(RemoteName(login, ""), ask_here)
    words = [f"--{key}={value}" for key, value in arguments.items() if value is not None]
    parse_hosts(hosts_text)
    try:
        answer = await head.start(words, hosts_text, gputui)
    finally:
        await asyncio.shield(head.close())
    if "looked" in answer:
        looked = ", ".join(map(str, answer["looked"]))
        raise HeadError(
            f"{login}: no gputui there (looked for {safe(looked)})\n"
            "  pip install gputui there, or name it: --remote-gputui PATH"
        )
    shown = answer["warned"].replace("gputui attach ", f"gputui attach {login}:")
    shown = shown.replace("gputui down ", f"gputui down {login}:")
    print(safe_lines(shown), end="", file=sys.stderr)
    if re.search(r"^gputui:   ", shown, re.MULTILINE):
        print(f"gputui: these commands are for a shell on {login}", file=sys.stderr)
    print(safe_lines(answer["said"]), end="", flush=True)
    return int(answer["status"]) if answer["status"] >= 0 else int(ExitCode.INTERRUPTED)
