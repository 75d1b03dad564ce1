"""Runs rows of the table through ssh and through gputui's connector, and prints what each came to.

`python -m tests.fleet.oracle.compare FOLDER HOME ROW…` inside a home of its own: a JSON line a row.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gputui.errors import HostError
from gputui.fleet.ssh.connector import Connector
from gputui.fleet.stages import Question, Stages
from gputui.model.hosts import Host, parse_hosts
from tests.fleet.oracle.rows import ROWS, Row
from tests.fleet.oracle.world import OUTSIDE, World, environment

COMMAND = 'echo "$USER $SSH_CONNECTION"; cat "$SSH_USER_AUTH"'
BOUND_S = 15
NO_SESSION = ("-o", "RemoteCommand=none", "-o", "SessionType=default")
"""What a configuration says for a person's own session."""

SAID_BY_SSH = {
    "loop": "jumphost loop",
    "login": "Permission denied|Too many authentication",
    "changed": "IDENTIFICATION HAS CHANGED",
    "revoked": "revoked|REVOKED",
    "weak": "key length|Bad server host key",
    "algorithms": "no matching",
    "unknown": "Host key verification failed|KnownHostsCommand",
    "unresolved": "Could not resolve",
    "refused": "Connection refused",
    "configuration": "Bad configuration|terminating",
    "proxy": "UNKNOWN port 65535|Connection closed|Broken pipe",
}
SAID_BY_GPUTUI = {
    "loop": "in a loop",
    "changed": "has changed",
    "revoked": "revoked",
    "weak": "fewer than",
    "algorithms": "shares no SSH algorithm|allows only",
    "unknown": "is not known|on record for its address|KnownHostsCommand",
    "login": "refused the login",
    "unresolved": "does not resolve",
    "refused": "refuses the connection",
    "configuration": "Bad configuration|bad configuration options",
    "proxy": "ProxyCommand failed",
}


@dataclass(slots=True)
class Outcome:
    """What a client came to."""

    result: str
    """`user@address:port key`, ` from address` where that is not the usual; or why not."""
    asked: tuple[str, ...] = ()
    remembered: int = 0
    """Lines of known_hosts afterwards."""
    words: str = ""
    """What was said, for a person."""
    called: tuple[str, ...] = ()
    """With what a command of the configuration was called."""


def compare(world: World, names: Collection[str]) -> Iterator[dict[str, object]]:
    """Yield what became of each of the rows of these names."""
    for row in (row for row in ROWS if row.name in names):
        host = parse_hosts(row.line.replace(";", "\n"))[0]
        with_ssh = _with_ssh(world, row, host)
        with_gputui = asyncio.run(_with_gputui(world, row, host))
        made = bool(row.untouched) and (world.home / row.untouched).exists()
        yield {
            "name": row.name,
            "ssh": asdict(with_ssh),
            "gputui": asdict(with_gputui),
            "touched": made,
        }


def _with_ssh(world: World, row: Row, host: Host) -> Outcome:
    """Run `ssh host command`."""
    more = world.prepare(row)
    given = [
        *(["-l", host.user] if host.user else []),
        *(["-p", str(host.port)] if host.port else []),
    ]
    command = ["ssh", *NO_SESSION, *given, host.ssh_name, COMMAND]
    with _environ(more):
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **environment(row.answers, world.folder)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BOUND_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return Outcome("no end")
    asked = world.folder / "asked"
    prompts = asked.read_text().splitlines() if asked.exists() else []
    kinds = tuple(kind for prompt in prompts if (kind := _kind(prompt)))
    return _outcome(world, done.stdout, done.stderr, SAID_BY_SSH, kinds)


def _kind(prompt: str) -> str:
    """Return the kind of a prompt of ssh's; "" for a line of one that goes on."""
    if "continue connecting" in prompt:
        return "host-key"
    if "passphrase" in prompt:
        return "passphrase"
    return "password" if "assword" in prompt else ""


async def _with_gputui(world: World, row: Row, host: Host) -> Outcome:
    """Run the same command over a connection of gputui's."""
    more = world.prepare(row)
    asked: list[str] = []

    async def ask(question: Question) -> str | None:
        asked.append(question.kind)
        return row.answers.get(question.kind)

    stages = Stages(host.name, row.stage_s, ask=ask)
    output, problem = "", ""
    with _environ(more):
        connector = Connector()
        try:
            async with asyncio.timeout(BOUND_S):
                connection = await connector.connect(host, stages, COMMAND)
                stream = await connection.run(COMMAND)
                while chunk := await stream.read():
                    output += chunk.decode()
                await stream.close()
        except HostError as error:
            problem = error.reason
        except TimeoutError:
            return Outcome("no end")
        except Exception:
            return Outcome("defect", words=traceback.format_exc())
        finally:
            await connector.close()
    return _outcome(world, output, problem, SAID_BY_GPUTUI, tuple(asked))


def _outcome(
    world: World, output: str, problem: str, said: Mapping[str, str], asked: tuple[str, ...]
) -> Outcome:
    known = world.home / ".ssh" / "known_hosts"
    remembered = len(known.read_text().splitlines())
    lines = output.replace("\r", "").splitlines()
    who = lines[0].split() if lines else []
    called = (world.home / "said").read_text() if (world.home / "said").exists() else ""
    more = (asked, remembered, problem, tuple(sorted(set(called.splitlines()))))
    if len(who) < 5:
        result = next((why for why, words in said.items() if re.search(words, problem)), "other")
        return Outcome(result, *more)
    user, client, _, address, port = who
    origin = "" if client in ("127.0.0.1", "::1", OUTSIDE) else f" from {client}"
    how = next((line for line in lines[1:] if line), "")
    key = world.key_name(how) if how.startswith("publickey") else how.split()[0]
    return Outcome(f"{user}@{address}:{port} {key}{origin}", *more)


@contextlib.contextmanager
def _environ(more: Mapping[str, str]) -> Iterator[None]:
    """Have these variables, and no agent but theirs."""
    before = dict(os.environ)
    os.environ.pop("SSH_AUTH_SOCK", None)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Make the world, compare, and take it away."""
    folder, home, *names = sys.argv[1:]
    world = World(Path(folder), Path(home))
    try:
        world.create()
        for row in compare(world, names):
            print(json.dumps(row), flush=True)
    finally:
        world.destroy()


if __name__ == "__main__":
    main()
