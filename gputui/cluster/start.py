"""Start a head, and wait for its cluster to come up: for `--run`, the screen, `up` and Python.

Nothing here imports distributed: a frontend does that while its head starts.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace

from gputui.cluster.link import HeadLink
from gputui.errors import ClusterError, HeadError, ProtocolError
from gputui.process.search_path import own_environment, own_python
from gputui.protocol.codec import decode, encode
from gputui.protocol.frontend import AwaitWorkers, Settled
from gputui.protocol.shared import Refused
from gputui.protocol.starter import ConfigureHead, ToStarter
from gputui.snapshot import HostStatus, WorkerStatus

END_S = 20.0
"""How long a head may take to end everything."""


class HeadProcess:
    """A head that was started here; unless its cluster stays, it ends with this hold on it."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, stays: bool) -> None:
        self._process = process
        self._stays = stays

    @property
    def pid(self) -> int:
        """The head's process."""
        return self._process.pid

    def opened(self) -> str:
        """Return the socket of its server, as soon as it is open; raises HeadError when it refuses.

        Blocks, about a tenth of a second.
        """
        assert self._process.stdout and self._process.stderr
        line = self._process.stdout.readline()
        if not line:
            last_log_lines = self._process.stderr.read().decode("utf-8", "replace").strip()
            status = self._process.wait()
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise HeadError(f"the head ended as it started ({how}) {last_log_lines}".rstrip())
        self._process.stdout.close()
        self._process.stderr.close()
        return _socket(line)

    def end(self) -> None:
        """Have the head stop its cluster, and wait until it has; kill it if it does not."""
        if self._stays:
            self._process.terminate()
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def spawn_head(config: ConfigureHead) -> HeadProcess:
    """Start a head in a session of its own; it begins to reach its hosts at once."""
    config = replace(config, cluster_id=secrets.token_hex(8))
    process = subprocess.Popen(
        own_python("gputui.head"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **own_environment(), "GPUTUI_CLUSTER": config.cluster_id},
        start_new_session=True,
    )
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(encode(config))
        process.stdin.flush()
        if config.stays:
            process.stdin.close()
    return HeadProcess(process, stays=config.stays)


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that came up."""

    link: HeadLink
    head: HeadProcess
    workers: tuple[str, ...]
    failed_hosts: tuple[HostStatus, ...]
    failed_workers: tuple[WorkerStatus, ...]


async def bring_up(
    config: ConfigureHead,
    *,
    frontend: str = "run",
    min_workers: int = 1,
    meanwhile: Callable[[], object] = lambda: None,
) -> Running:
    """Start a cluster, and return when the workers wanted are up or no more will come.

    `meanwhile` is called in a thread while it starts. Raises HeadError when there is no head,
    ClusterError with every host's reason when fewer than `min_workers` are up; nothing is left
    running then.
    """
    head = spawn_head(config)
    try:
        doing = asyncio.create_task(asyncio.to_thread(meanwhile))
        socket = await asyncio.to_thread(head.opened)
        link = await HeadLink.open(socket, frontend=frontend)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(head.end))
        raise
    try:
        settled = await link.request(AwaitWorkers(0, config.workers))
        assert isinstance(settled, Settled)
        check_enough(settled, min_workers)
        await doing
    except BaseException:
        await link.close()
        await asyncio.shield(asyncio.to_thread(head.end))
        raise
    return Running(link, head, settled.workers, settled.failed_hosts, settled.failed_workers)


def check_enough(settled: Settled, min_workers: int) -> None:
    """Raise ClusterError, with every reason, when fewer workers are up."""
    if len(settled.workers) >= min_workers:
        return
    found = f"{len(settled.workers)} of at least {min_workers} workers came up"
    raise ClusterError("\n".join([found, *failures(settled)]))


def failures(settled: Settled) -> list[str]:
    """Return what went wrong, a line for each host and worker, with what mends it."""
    lines = []
    for host in settled.failed_hosts:
        lines.append(f"{host.name}: {host.reason} (while {host.failed_stage})")
        lines += [f"  {host.hint}"] if host.hint else []
    return lines + [f"{worker.name}: {worker.reason}" for worker in settled.failed_workers]


def _socket(line: bytes) -> str:
    """Return what a head said first; raises HeadError."""
    try:
        message: ToStarter = decode(line, ToStarter)
    except ProtocolError as error:
        raise HeadError(str(error)) from error
    if isinstance(message, Refused):
        raise HeadError(message.reason)
    return message.socket
