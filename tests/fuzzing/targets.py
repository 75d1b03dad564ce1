"""What is fuzzed: functions of bytes that raise nothing, whatever the bytes are."""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputui.cli import listing
from gputui.errors import GputuiError
from gputui.fleet.ssh.configuration import Here, SshConfiguration
from gputui.head.server import LINE_BYTES as FRONTENDS_LINE_BYTES
from gputui.model.alarms import Alarms
from gputui.model.hosts import parse_hosts
from gputui.model.slots import slots_of
from gputui.model.snapshot import Snapshot
from gputui.protocol import agent, frontend, scheduler, starter
from gputui.protocol.typed_codec import decode, encode
from gputui.runs import records
from gputui.runs.records import status_of

RUN = "one"
"""The id of the run whose record is fuzzed."""
UNIONS: dict[str, Any] = {
    "agent": agent.FromAgent,
    "to agent": agent.ToAgent,
    "frontend": frontend.FromFrontend,
    "to frontend": frontend.ToFrontend,
    "scheduler": scheduler.FromScheduler,
    "to scheduler": scheduler.ToScheduler,
    "starter": starter.ToStarter,
}


def hosts(data: bytes) -> None:
    """Parse a hosts file; what is refused is refused in words that a terminal can show."""
    try:
        parse_hosts(data.decode("utf-8", "replace"))
    except GputuiError as error:
        assert_words(error)


def messages(data: bytes) -> None:
    """Decode a line of every connection; what is taken can be sent on as it is."""
    for union in UNIONS.values():
        with contextlib.suppress(GputuiError):
            message = decode(data, union)
            assert decode(encode(message), union) == message


def snapshots(data: bytes) -> None:
    """Decode a snapshot, and do with it what every screen does."""
    with contextlib.suppress(GputuiError):
        snapshot = decode(data, Snapshot)
        Alarms().look(snapshot, slots_of(snapshot))


def run_records(data: bytes) -> None:
    """List and show the runs where a record holds this."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gputui", "runs", RUN, records.FILE)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = folder
        try:
            for record in records.recorded():
                json.dumps(asdict(record), allow_nan=False)
                "\n".join([*listing.run_table((record,)), *listing.parts(record)]).encode()
                status_of(record)
        finally:
            os.environ.pop("XDG_STATE_HOME")
            if before is not None:
                os.environ["XDG_STATE_HOME"] = before


def ssh_configuration(data: bytes) -> None:
    """Read what `ssh -G` prints."""
    here = Here("me", 1000, "/home/me", "here", {})
    found = SshConfiguration("gpu-a", data.decode("utf-8", "replace"), here)
    assert 0 <= found.port < 10**9
    for paths in (found.known_hosts("userknownhostsfile"), found.paths("identityfile")):
        assert all(paths)
    assert found.where and found.login_name and found.prompts >= 0
    for read in ("jumps", "proxy_command", "agent", "not_honoured"):
        getattr(found, read)


def assert_words(error: Exception) -> None:
    """Check that an error says something, and nothing that moves the cursor."""
    said = str(error)
    assert said.strip(), repr(error)
    assert all(line.isprintable() for line in said.split("\n")), repr(said)


MEMORY_MB = 1_024
"""What a fuzzer may take, with all that it keeps of its own."""


@dataclass(frozen=True)
class Target:
    """A function of bytes, and the bounds that hold for what others send: its oracles."""

    work: Callable[[bytes], None]
    most_bytes: int
    """What the program itself takes of it at most."""
    most_s: float
    """The CPU that it may take, with that many bytes."""

    def __call__(self, data: bytes) -> None:
        """Take some bytes; raises AssertionError where it takes too long."""
        began = time.thread_time()
        self.work(data)
        took_s = time.thread_time() - began
        assert took_s < self.most_s, f"{took_s:.2f} s for {len(data):,} bytes"


TARGETS = {
    "hosts": Target(hosts, 2**20, 2.0),
    "messages": Target(messages, FRONTENDS_LINE_BYTES, 0.05 * len(UNIONS)),
    "snapshots": Target(snapshots, 2**23, 2.0),
    "records": Target(run_records, 2**20, 2.0),
    "ssh": Target(ssh_configuration, 2**20, 2.0),
}
