"""A head for one agent, played by a test: a real relay, and a scheduler over TLS to join."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed

from gputui.agent.worker_process import WorkerOutput, WorkerProcess, explain
from gputui.engine.tls import security
from gputui.model.plan import WorkerSpec
from gputui.process.search_path import own_environment
from gputui.protocol.agent import (
    MARKER,
    Configure,
    Facts,
    FromAgent,
    Ping,
    Shutdown,
    StartWorkers,
    Telemetry,
    ToAgent,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.forking import ForkWorker
from gputui.protocol.typed_codec import decode, encode
from tests.processes import nothing_left
from tests.sshd import unavailable

BOUND_S = 30
GROUPS = Path("/sys/fs/cgroup")


class Driver:
    """Plays the head of one agent."""

    def __init__(self, folder: Path, lease_s: float = 2 * BOUND_S) -> None:
        self.cluster_id = f"test-{folder.name}-{os.getpid()}"
        self.cluster = ""
        self.once = False
        self.interval_s = 1.0
        self.lease_s = lease_s
        self.bound_s = BOUND_S
        self.env = {
            **os.environ,
            **own_environment(),
            "XDG_RUNTIME_DIR": "",
            "TMPDIR": str(folder),
            "GPUTUI_CLUSTER": self.cluster_id,
        }
        self.before: tuple[str, ...] = ()
        """A command that runs the relay, in front of it."""
        self.seen: list[FromAgent] = []
        self.relay: asyncio.subprocess.Process

    async def connect(self) -> Facts:
        """Start a relay and return the agent's facts."""
        await self.begin()
        return await self.wait_for(Facts)

    async def begin(self) -> None:
        """Start a relay and send the first message."""
        self.relay = await asyncio.create_subprocess_exec(
            *(*self.before, sys.executable, "-m", "gputui.agent", "relay"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self.env,
            limit=2**24,
        )
        assert await self.relay.stdout.readline() == MARKER + b"\n"
        head = self.cluster_id, "host", self.lease_s, self.interval_s
        self.send(Configure(*head, env=(), cluster=self.cluster, once=self.once))

    def send(self, message: ToAgent) -> None:
        self.relay.stdin.write(encode(message))

    async def wait_for(self, kind: type, fits: Callable[[Any], bool] = lambda message: True) -> Any:
        """Return the next message of a kind that fits, and keep the lease meanwhile."""
        async with asyncio.timeout(self.bound_s):
            while line := await self.relay.stdout.readline():
                message = decode(line, FromAgent)
                self.seen.append(message)
                if isinstance(message, Telemetry):
                    self.send(Ping(0))
                if isinstance(message, kind) and fits(message):
                    return message
        raise AssertionError(f"the stream ended before {kind.__name__}; seen {self.seen[-5:]}")

    async def end_of_stream(self) -> None:
        async with asyncio.timeout(BOUND_S):
            while await self.relay.stdout.readline():
                continue

    async def nothing_left(self) -> None:
        """Wait until no process of this cluster is left; that is no lease's doing, by default."""
        await nothing_left(self.cluster_id, BOUND_S)

    async def shut_down(self) -> None:
        self.send(Shutdown(2.0))
        await self.end_of_stream()
        await self.relay.wait()
        await self.nothing_left()

    def cut(self) -> None:
        """End the relay, as a lost connection would."""
        with contextlib.suppress(ProcessLookupError):
            self.relay.kill()

    async def hang_up(self) -> None:
        """End the relay, and see its end."""
        self.cut()
        await self.relay.wait()

    def started(self) -> WorkerStarted:
        return next(each for each in self.seen if isinstance(each, WorkerStarted))


class Scheduler(distributed.Scheduler):  # type: ignore[misc]
    """Dask's scheduler without HTTP."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        pass


class Printed(WorkerOutput):
    """What a worker printed before it ended."""

    def __init__(self, *lines: str) -> None:
        super().__init__("host:cpu0", print)
        self._lines = lines

    def tail(self, count: int) -> tuple[str, ...]:
        return self._lines


def how_it_ended(
    status: int,
    *lines: str,
    oom_kills: int = 0,
    limit_hits: int = 0,
    device: str = "",
    **fields: Any,
) -> tuple[str, str]:
    """Explain the end of a worker that had come up, if `fields` do not say otherwise."""
    order = StartWorkers((), "tls://127.0.0.1:1", "127.0.0.1")
    fields = {"ready": WorkerReady("host:cpu0", "tls://127.0.0.1:2", None), **fields}
    worker = WorkerProcess(spec(), order, Printed(*lines), **fields)
    return explain(worker, status, oom_kills=oom_kills, limit_hits=limit_hits, device=device)


def spec(name: str = "host:cpu0", memory_limit_bytes: int = 2**31) -> WorkerSpec:
    return WorkerSpec(name, "host", None, 1, memory_limit_bytes)


def fork_order(scratch: Path) -> ForkWorker:
    """Return an order that no forkserver carries out."""
    return ForkWorker(spec(), "tls://127.0.0.1:1", "127.0.0.1", str(scratch), "/nowhere", (), 0, 0)


def order_worker(
    driver: Driver, scheduler: Any, *specs: WorkerSpec, listen: str = "127.0.0.1"
) -> None:
    one, credentials = scheduler
    driver.send(credentials)
    driver.send(StartWorkers(specs or (spec(),), one.address, listen))


async def start_worker(driver: Driver, scheduler: Any, *specs: WorkerSpec) -> None:
    order_worker(driver, scheduler, *specs)
    for _ in specs or (spec(),):
        await driver.wait_for(WorkerReady)


def client_of(scheduler: Any) -> Any:
    one, credentials = scheduler
    own = security(credentials.certificate_pem, credentials.key_pem)
    return distributed.Client(one.address, security=own, asynchronous=True)


def quickest(call: Callable[[], object]) -> float:
    """Return in how many seconds the quickest of some calls returned: that one was not held up."""
    took = []
    for _ in range(10):
        began = time.monotonic()
        call()
        took.append(time.monotonic() - began)
    return min(took)


@contextlib.contextmanager
def control_group(
    controller: str, unified: dict[str, str], first: dict[str, str]
) -> Iterator[Path]:
    """Make a control group with these files, of whichever version the machine has.

    What runs in it is to end before.
    """
    if os.getuid() != 0:
        unavailable("control groups need root")
    old = (GROUPS / controller).is_dir()
    made = (GROUPS / controller if old else GROUPS) / f"gputui-test-{os.getpid()}"
    try:
        made.mkdir()
        for name, text in (first if old else unified).items():
            (made / name).write_text(text)
    except OSError as error:
        unavailable(f"no control group of {controller} can be made: {error}")
    try:
        yield made
    finally:
        end = time.monotonic() + 20
        while made.exists():
            try:
                made.rmdir()
            except OSError:  # what was ended in it is still on its way out
                assert time.monotonic() < end, (made / "cgroup.procs").read_text()
                time.sleep(0.05)


def joining(made: Path) -> tuple[str, ...]:
    """Return a command that starts another in a control group."""
    return ("sh", "-c", f'echo $$ >{made}/cgroup.procs && exec "$@"', "sh")
