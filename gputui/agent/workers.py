"""The workers of this host: started by the forkserver, watched, limited, restarted, stopped."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gputui.agent.exits import explain
from gputui.agent.forkserver_process import ForkserverProcess
from gputui.agent.limits import keep_limits
from gputui.agent.output import Output
from gputui.agent.worker_process import WorkerProcess
from gputui.dask_settings import TERMINATE, terminate_share
from gputui.plan import WorkerSpec
from gputui.process.cgroups import Cgroups
from gputui.process.lifetime import Place, end_children, kill_group
from gputui.protocol.agent import (
    Credentials,
    FollowLogs,
    ForkserverReady,
    FromAgent,
    RunningWorker,
    StartWorkers,
    Trouble,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)

TAIL_LINES = 20
"""How much of a worker's last output is told with its end."""

RESTART_GRACE_S = 3.0

KILLED_S = 5.0
"""How long the kernel may take to end what was killed."""


class Workers:
    """All workers of a host, by name."""

    def __init__(
        self,
        environ: dict[str, str],
        scratch: Path,
        place: Place,
        send: Callable[[FromAgent], None],
        cpus_near: Callable[[str], frozenset[int]],
    ) -> None:
        """Start workers within `scratch`; `cpus_near` tells where those of a device run best."""
        self._cpus_near = cpus_near
        self._scratch = scratch
        self._send = send
        self._workers: dict[str, WorkerProcess] = {}
        self._credentials: Credentials | None = None
        self._terminate_share: float | None = TERMINATE
        self._forkserver = ForkserverProcess(
            environ, scratch, place, heard=self._hear, lost=self._forkserver_lost
        )
        self._cgroups = Cgroups()
        self._limits: asyncio.Task[None] | None = None
        self._following = False

    def open(self) -> None:
        """Start the forkserver; it imports while the head makes up its mind."""
        self._forkserver.start()
        self._limits = asyncio.create_task(
            keep_limits(self._workers, lambda: self._terminate_share)
        )

    def trust(self, credentials: Credentials) -> None:
        """Keep what workers need to join, and hand it on."""
        self._credentials = credentials
        self._terminate_share = terminate_share(credentials.dask_config_json)
        if self._forkserver.ready:
            self._forkserver.order({"credentials": asdict(credentials)})

    def start(self, order: StartWorkers) -> None:
        """Start the workers of an order; those that are there already are left alone."""
        for spec in order.specs:
            worker = self._workers.get(spec.name)
            if worker is None:
                self._add(spec, order)
            elif worker.stopping:
                worker.again = (spec, order)
            elif worker.order.scheduler_address != order.scheduler_address:
                worker.spec, worker.order = spec, order
                self.restart([spec.name])
            elif worker.parked:
                self.restart([spec.name])
            elif worker.pid is not None:
                self._send(WorkerStarted(spec.name, worker.pid, worker.restarts))
                if worker.address:
                    self._send(WorkerReady(spec.name, worker.address, worker.device_uuid))

    def _add(self, spec: WorkerSpec, order: StartWorkers) -> None:
        worker = WorkerProcess(spec, order, Output(spec.name, self._send))
        worker.output.following = self._following
        self._workers[spec.name] = worker
        self._fork(worker)

    def stop(self, names: Iterable[str], grace_s: float) -> Coroutine[Any, Any, None]:
        """Ask workers to end for good, now; what is returned waits, and kills after the grace."""
        ending = [self._workers[name] for name in names if name in self._workers]
        for worker in ending:
            worker.stopping, worker.again = True, None
            worker.cancel_restart()
            worker.ask_to_end()
            if worker.pid is None and not worker.forking:
                self._workers.pop(worker.spec.name, None)
        return self._see_end([worker for worker in ending if worker.pid is not None], grace_s)

    async def _see_end(self, ending: list[WorkerProcess], grace_s: float) -> None:
        """Wait for workers that were asked to end; kill those that do not, and all they started."""
        waits = [asyncio.create_task(worker.ended.wait()) for worker in ending]
        if waits:
            await asyncio.wait(waits, timeout=grace_s)
        for worker in ending:
            worker.kill()
        if waits:
            _, missing = await asyncio.wait(waits, timeout=KILLED_S)
            for wait in missing:
                wait.cancel()

    def restart(self, names: Iterable[str]) -> None:
        """End and start workers anew, parked ones included."""
        for name in names:
            worker = self._workers.get(name)
            if worker is None or worker.stopping:
                continue
            worker.failures, worker.parked = 0, False
            worker.cancel_restart()
            if worker.pid is not None:
                worker.ask_to_end()
                worker.kill_after(RESTART_GRACE_S)
            elif not worker.forking:
                self._fork(worker)

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
        """End whatever is left, and the forkserver."""
        if self._limits:
            self._limits.cancel()
        for worker in self._workers.values():
            worker.cancel_restart()
            worker.kill()
        await self._forkserver.close()
        end_children()
        for worker in self._workers.values():
            worker.output.close()

    def _hear(self, message: dict[str, Any]) -> None:
        """Take what the forkserver tells."""
        if "ready" in message:
            self._send(ForkserverReady(message["ready"]))
            if self._credentials:
                self.trust(self._credentials)
            for worker in self._workers.values():
                if worker.waiting:
                    self._fork(worker)
        elif "forked" in message:
            self._forked(message["forked"], message["pid"])
        else:
            self._exited(message["exited"], message["pid"], message["status"])

    def _forkserver_lost(self, said: str, given_up: bool) -> None:
        """The forkserver died, and its workers with it: end what they started, and begin anew."""
        end_children()
        self._send(Trouble(f"the process that starts workers ended: {said or 'without a word'}"))
        for worker in list(self._workers.values()):
            if worker.pid is not None:
                self._exited(worker.spec.name, worker.pid, signal.SIGKILL)
            elif worker.forking:
                self._fork(worker)
        if given_up:
            for worker in self._workers.values():
                self._park(worker, said)

    def _park(self, worker: WorkerProcess, said: str) -> None:
        """Give up a worker that no forkserver could start."""
        worker.cancel_restart()
        worker.waiting, worker.parked = False, True
        reason = f"its Python cannot import what workers need: {said}"
        tail = worker.output.tail(TAIL_LINES)
        self._send(
            WorkerExited(worker.spec.name, 0, "import-error", reason, None, None, tail, None, True)
        )

    def _fork(self, worker: WorkerProcess) -> None:
        """Have the forkserver fork a worker, with pipes for what it prints and reports."""
        worker.restart, worker.forking = None, self._forkserver.ready
        worker.waiting = not self._forkserver.ready
        if worker.waiting:
            self._forkserver.start()
            return
        spec, order = worker.spec, worker.order
        worker.begin(self._cgroups.oom_kills())
        folder = self._scratch / spec.name.replace(":", "-")
        folder.mkdir(mode=0o700, exist_ok=True)
        printed = worker.output.open()
        reads, reports = os.pipe()
        self._forkserver.order(
            {
                "spawn": {
                    **asdict(spec),
                    "scheduler_address": order.scheduler_address,
                    "listen_host": order.listen_host,
                    "scratch": str(folder),
                    "lock": str(self._scratch / "cuda.lock"),
                    "cpus": sorted(self._cpus_near(spec.device_uuid)) if spec.device_uuid else [],
                }
            },
            (printed, reports),
        )
        os.close(printed)
        os.close(reports)
        os.set_blocking(reads, False)
        asyncio.get_running_loop().add_reader(reads, self._read_report, worker, reads)

    def _read_report(self, worker: WorkerProcess, descriptor: int) -> None:
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
        worker.pid, worker.started_at, worker.forking = pid, time.monotonic(), False
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
        end = explain(
            status,
            tail,
            stopped=worker.stopping,
            over_limit_bytes=worker.over_limit_bytes,
            kernel_killed=self._cgroups.oom_kills() > worker.oom_kills,
        )
        wait_s = None if worker.stopping else worker.next_start(end)
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
            if worker.again:
                self._add(*worker.again)
        elif wait_s is not None:
            worker.restarts += 1
            loop = asyncio.get_running_loop()
            worker.restart = loop.call_later(wait_s, self._fork, worker)
        worker.ended.set()
