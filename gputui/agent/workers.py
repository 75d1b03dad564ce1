"""The workers of this host: started through the nursery, watched, limited, restarted, stopped."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gputui.agent import procfs
from gputui.agent.exits import Exit, explain
from gputui.agent.lifeline import kill_group, own_command
from gputui.agent.output import Output
from gputui.plan import WorkerSpec
from gputui.protocol import (
    Credentials,
    FollowLogs,
    Message,
    NurseryReady,
    RunningWorker,
    StartWorkers,
    Trouble,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)

BACKOFF_S = (0.5, 1.0, 2.0, 4.0)
"""Before the second, third… start of a worker that keeps failing."""

PARKED_AFTER = 5
LIVED_S = 60.0
"""A worker that lived so long has not failed to start."""

MEMORY_CHECK_S = 0.2
MEMORY_SHARE = 0.95
"""Of its limit: where a worker is ended. Source: distributed.worker.memory.terminate."""

PACKET_BYTES = 2**19
TAIL_LINES = 20


@dataclass(slots=True)
class Running:
    """One worker: what it is to be, and its process where it has one."""

    spec: WorkerSpec
    order: StartWorkers
    output: Output
    pid: int | None = None
    started_at: float = 0.0
    restarts: int = 0
    failures: int = 0
    stopping: bool = False
    over_limit: bool = False
    parked: bool = False
    address: str = ""
    device_uuid: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    restart: asyncio.TimerHandle | None = None


class Workers:
    """All workers of a host, by name."""

    def __init__(
        self, environ: dict[str, str], scratch: Path, send: Callable[[Message], None]
    ) -> None:
        self._environ = environ
        self._scratch = scratch
        self._send = send
        self._workers: dict[str, Running] = {}
        self._credentials: Credentials | None = None
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._limits: asyncio.Task[None] | None = None
        self._following = False
        self._closed = False

    async def open_nursery(self) -> None:
        """Start the nursery; it imports while the head makes up its mind."""
        self._start_nursery()
        self._limits = asyncio.create_task(self._watch_memory())

    def trust(self, credentials: Credentials) -> None:
        """Keep what workers need to join, and hand it on."""
        self._credentials = credentials
        self._order({"credentials": asdict(credentials), "scratch": str(self._scratch)})

    def start(self, order: StartWorkers) -> None:
        """Start the workers of an order; those that run already are left alone."""
        for spec in order.specs:
            worker = self._workers.get(spec.name)
            if worker is None or (worker.pid is None and worker.stopping):
                worker = Running(spec, order, Output(spec.name, self._send))
                worker.output.following = self._following
                self._workers[spec.name] = worker
                self._fork(worker)
            elif worker.pid is None and worker.restart is None:
                self._fork(worker)
            elif worker.pid is not None:
                self._send(WorkerStarted(spec.name, worker.pid, worker.restarts))
                if worker.address:
                    self._send(WorkerReady(spec.name, worker.address, worker.device_uuid))

    async def stop(self, names: Iterable[str], grace_s: float) -> None:
        """End workers for good: asked first, killed with all they started after the grace."""
        ending = [self._workers[name] for name in names if name in self._workers]
        for worker in ending:
            worker.stopping = True
            if worker.restart:
                worker.restart.cancel()
            if worker.pid is None:
                self._workers.pop(worker.spec.name, None)
            else:
                _signal(worker.pid, signal.SIGTERM)
        alive = [worker for worker in ending if worker.pid is not None]
        if alive and grace_s > 0:
            waits = [asyncio.create_task(worker.ended.wait()) for worker in alive]
            await asyncio.wait(waits, timeout=grace_s)
            for wait in waits:
                wait.cancel()
        for worker in alive:
            if worker.pid is not None:
                kill_group(worker.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.gather(*(worker.ended.wait() for worker in alive))

    def restart(self, names: Iterable[str]) -> None:
        """End and start workers anew, parked ones included."""
        for name in names:
            worker = self._workers.get(name)
            if worker is None or worker.stopping:
                continue
            worker.failures, worker.parked = 0, False
            if worker.pid is None:
                self._fork(worker)
            else:
                _signal(worker.pid, signal.SIGTERM)
                asyncio.get_running_loop().call_later(3, self._kill_if_alive, worker, worker.pid)

    def follow(self, wish: FollowLogs) -> None:
        """Send what workers print from now on, after the last of what they printed; or stop."""
        self._following = wish.on
        for worker in self._workers.values():
            worker.output.follow(wish.on, wish.history)

    def names(self) -> tuple[str, ...]:
        """Return the names of all workers."""
        return tuple(self._workers)

    def pids(self) -> dict[str, int]:
        """Return the pids of the workers that have a process."""
        return {name: each.pid for name, each in self._workers.items() if each.pid is not None}

    def running(self) -> tuple[RunningWorker, ...]:
        """Return the workers that have a process, for a head that connects again."""
        return tuple(
            RunningWorker(name, each.pid, each.restarts)
            for name, each in self._workers.items()
            if each.pid is not None
        )

    async def close(self) -> None:
        """End whatever is left, and the nursery."""
        self._closed = True
        if self._limits:
            self._limits.cancel()
        for worker in self._workers.values():
            if worker.restart:
                worker.restart.cancel()
            if worker.pid is not None:
                kill_group(worker.pid)
        self._close_control()
        if self._nursery is not None:
            try:
                await asyncio.to_thread(self._nursery.wait, 2)
            except subprocess.TimeoutExpired:
                self._nursery.kill()
                self._nursery.wait()
        for worker in self._workers.values():
            worker.output.close()

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACKET_BYTES)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        with (self._scratch / "nursery.log").open("ab") as log:
            self._nursery = subprocess.Popen(
                [*own_command(), "nursery", str(theirs.fileno())],
                env=threads | self._environ,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)

    def _order(self, order: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Give the nursery an order, with descriptors."""
        if self._control is None:
            return
        self._control.setblocking(True)
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], list(descriptors))
        except OSError:
            return
        finally:
            self._control.setblocking(False)

    def _hear(self) -> None:
        """Take what the nursery tells."""
        assert self._control is not None
        try:
            data = self._control.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._nursery_lost()
            return
        message = json.loads(data)
        if "ready" in message:
            self._send(NurseryReady(message["ready"]))
        elif "forked" in message:
            self._forked(message["forked"], message["pid"])
        else:
            self._exited(message["exited"], message["pid"], message["status"])

    def _nursery_lost(self) -> None:
        """The nursery died, and its workers with it: end what they started, and begin anew."""
        self._close_control()
        if self._closed or self._nursery is None:
            return
        status = self._nursery.wait()
        said = _last_lines(self._scratch / "nursery.log")
        self._send(Trouble(f"the process that starts workers ended ({status}): {' '.join(said)}"))
        self._start_nursery()
        if self._credentials:
            self.trust(self._credentials)
        for worker in list(self._workers.values()):
            if worker.pid is not None:
                kill_group(worker.pid)
                self._exited(worker.spec.name, worker.pid, signal.SIGKILL)

    def _close_control(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None

    def _fork(self, worker: Running) -> None:
        """Have the nursery fork a worker, with pipes for what it prints and reports."""
        spec, order = worker.spec, worker.order
        worker.restart, worker.ended = None, asyncio.Event()
        worker.address, worker.device_uuid, worker.over_limit = "", None, False
        folder = self._scratch / spec.name.replace(":", "-")
        folder.mkdir(mode=0o700, exist_ok=True)
        printed = worker.output.open()
        reads, reports = os.pipe()
        self._order(
            {
                "spawn": {
                    **asdict(spec),
                    "scheduler_address": order.scheduler_address,
                    "listen_host": order.listen_host,
                    "scratch": str(folder),
                    "lock": str(self._scratch / "cuda.lock"),
                }
            },
            (printed, reports),
        )
        os.close(printed)
        os.close(reports)
        os.set_blocking(reads, False)
        asyncio.get_running_loop().add_reader(reads, self._read_report, worker, reads)

    def _read_report(self, worker: Running, descriptor: int) -> None:
        """Take what a worker reports of itself, until it ends."""
        try:
            data = os.read(descriptor, 4096)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
            return
        for line in data.splitlines():
            report = json.loads(line)
            worker.address = report["address"]
            worker.device_uuid = report.get("device_uuid")
            self._send(WorkerReady(worker.spec.name, worker.address, worker.device_uuid))

    def _forked(self, name: str, pid: int) -> None:
        worker = self._workers.get(name)
        if worker is None:
            kill_group(pid)
            return
        worker.pid, worker.started_at = pid, time.monotonic()
        self._send(WorkerStarted(name, pid, worker.restarts))
        if worker.stopping:
            kill_group(pid)

    def _exited(self, name: str, pid: int, status: int) -> None:
        """Take the end of a worker: tell why, and start it again where that is wanted."""
        worker = self._workers.get(name)
        if worker is None or worker.pid != pid:
            return
        worker.pid = None
        worker.output.read()
        tail = worker.output.tail(TAIL_LINES)
        end = explain(status, tail, stopped=worker.stopping, over_limit=worker.over_limit)
        wait_s = None if worker.stopping else self._next_start(worker, end)
        self._send(
            WorkerExited(
                name=name,
                pid=pid,
                kind=end.kind,
                reason=end.reason,
                exit_code=end.exit_code,
                signal=end.signal,
                log_tail=tail,
                restart_in_s=wait_s,
                parked=worker.parked,
            )
        )
        if worker.stopping:
            self._workers.pop(name, None)
            worker.output.close()
        elif wait_s is not None:
            worker.restarts += 1
            loop = asyncio.get_running_loop()
            worker.restart = loop.call_later(wait_s, self._fork, worker)
        worker.ended.set()

    def _next_start(self, worker: Running, end: Exit) -> float | None:
        """Return in how many seconds to start a worker again; None parks it."""
        if not end.failed:
            return 0.0 if end.kind == "closed" else BACKOFF_S[1]
        if time.monotonic() - worker.started_at > LIVED_S:
            worker.failures = 0
        worker.failures += 1
        if worker.failures >= PARKED_AFTER:
            worker.parked = True
            return None
        return BACKOFF_S[min(worker.failures, len(BACKOFF_S)) - 1]

    def _kill_if_alive(self, worker: Running, pid: int) -> None:
        if worker.pid == pid:
            kill_group(pid)

    async def _watch_memory(self) -> None:
        """End workers whose own memory nears their limit, before the kernel ends others."""
        while True:
            for worker in self._workers.values():
                if worker.pid is None or worker.over_limit:
                    continue
                stat = procfs.process_stat(worker.pid)
                limit = worker.spec.memory_limit_bytes * MEMORY_SHARE
                if stat is not None and limit and stat.rss_bytes >= limit:
                    worker.over_limit = True
                    kill_group(worker.pid)
            await asyncio.sleep(MEMORY_CHECK_S)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _last_lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-3:]
    except OSError:
        return []
