"""The workers of this host: started by the forkserver, watched, limited, restarted, stopped."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from gputui.agent.agent_socket import AgentSocket
from gputui.agent.examining import examine
from gputui.agent.forkserver_process import ForkserverProcess
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.worker_process import WorkerOutput, WorkerProcess, explain
from gputui.engine.dask_settings import TERMINATE, terminate_share
from gputui.errors import ProtocolError
from gputui.folders import own_folder
from gputui.model.examination import ExaminedHost
from gputui.model.plain_text import many
from gputui.model.plan import cpus_of
from gputui.process.background import within
from gputui.process.cgroups import Cgroups
from gputui.process.child import KILLED_S, PipeLines
from gputui.process.handle import Handle
from gputui.process.lifetime import ENDED_S, children, end_and_reap, end_children, start_problem
from gputui.protocol.agent import (
    FromAgent,
    StartWorkers,
    Trouble,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.codec import decode
from gputui.protocol.forking import (
    Forked,
    ForkEnded,
    ForkFailed,
    ForkWorker,
    FromForkserver,
    FromWorker,
    Imported,
    WorkerEnding,
)
from gputui.protocol.shared import Credentials, FollowLogs

RESTART_GRACE_S = 3.0


class Workers:
    """All workers of a host, by name."""

    def __init__(
        self,
        environ: dict[str, str],
        scratch: Path,
        agent_socket: AgentSocket,
        send: Callable[[FromAgent], None],
        watch: DeviceWatch,
        others: Callable[[], Iterable[int]],
    ) -> None:
        """Start workers within `scratch`, on the devices that are watched.

        `others` returns the pids of this process's children that are no worker's.
        """
        self._others = others
        self._watch = watch
        self._scratch = scratch
        self._socket = agent_socket
        self._send = send
        self._workers: dict[str, WorkerProcess] = {}
        self._credentials: Credentials | None = None
        self._terminate_share: float | None = TERMINATE
        self.forkserver = ForkserverProcess(
            environ, scratch, agent_socket, heard=self._hear, lost=self._forkserver_lost
        )
        self._cgroups = Cgroups()
        self._following = False
        self._examining = asyncio.Lock()

    def keep_limits(self) -> None:
        """End the workers that have come up to their memory limit."""
        if self._terminate_share is not None:
            for worker in self._workers.values():
                worker.keep_limit(self._terminate_share)

    def trust(self, credentials: Credentials) -> None:
        """Keep what workers need to join, and hand it on."""
        self._credentials = credentials
        self._terminate_share = terminate_share(credentials.dask_config_json)
        if self.forkserver.ready:
            self.forkserver.order(credentials)

    def start(self, order: StartWorkers) -> None:
        """Start the workers of an order; those that are there already are left alone."""
        for spec in order.specs:
            worker = self._workers.get(spec.name)
            if worker is None:
                worker = WorkerProcess(spec, order, WorkerOutput(spec.name, self._send))
                worker.output.following = self._following
                self._workers[spec.name] = worker
                self._fork(worker)
            elif worker.stopping:  # its end is reported, and the head starts it then
                continue
            elif worker.order.scheduler_address != order.scheduler_address:
                worker.spec, worker.order = spec, order
                self.restart([spec.name])
            elif worker.crash_loop:
                self.restart([spec.name])
            elif worker.pid is not None:
                self._send(WorkerStarted(spec.name, worker.pid, worker.restarts))
                if worker.ready:
                    self._send(worker.ready)

    async def stop(self, names: Iterable[str], grace_s: float) -> None:
        """Ask workers to end for good, and kill those that have not after the grace, with all that
        they started."""
        ending = [self._workers[name] for name in names if name in self._workers]
        for worker in ending:
            worker.stopping = True
            worker.cancel_restart()
            if worker.process is not None:
                worker.process.send_signal(signal.SIGTERM)
            elif not worker.forking:  # between two processes
                self._forget(worker, "stopped", "stopped")
        ending = [worker for worker in ending if worker.process is not None]
        await within(grace_s, asyncio.gather(*(worker.ended.wait() for worker in ending)))
        for worker in ending:
            worker.kill()
        await within(KILLED_S, asyncio.gather(*(worker.ended.wait() for worker in ending)))

    def restart(self, names: Iterable[str]) -> None:
        """Restart workers, those stopped by a crash loop included."""
        for name in names:
            worker = self._workers.get(name)
            if worker is None or worker.stopping:
                continue
            worker.failed_starts = 0
            worker.crash_loop = False
            worker.cancel_restart()
            if worker.process is not None:
                worker.restarting = True
                worker.process.send_signal(signal.SIGTERM)
                asyncio.get_running_loop().call_later(RESTART_GRACE_S, worker.process.kill_group)
            elif not worker.forking:
                self._fork(worker)

    async def examine(self) -> ExaminedHost:
        """Return how the host and the workers do, stuck ones too."""
        async with self._examining:  # an answer belongs to one examination
            return await examine(self._workers.values(), self._scratch, self._cgroups)

    def follow(self, wish: FollowLogs) -> None:
        """Start sending workers' output, the last lines first, or stop."""
        self._following = wish.on
        for worker in self._workers.values():
            worker.output.follow(wish.on)

    def names(self) -> tuple[str, ...]:
        """Return the names of all workers."""
        return tuple(self._workers)

    def devices(self) -> frozenset[str]:
        """Return the UUIDs of the GPUs that workers are pinned to, running or about to."""
        found = (each.spec.device_uuid for each in self._workers.values())
        return frozenset(uuid for uuid in found if uuid is not None)

    def pids(self) -> dict[str, int]:
        """Return the pids of the workers that have a process."""
        return {name: each.pid for name, each in self._workers.items() if each.pid is not None}

    def running(self) -> tuple[WorkerStarted, ...]:
        """Return the workers that run or will by themselves, for a head that connects again."""
        return tuple(
            WorkerStarted(name, each.pid, each.restarts)
            for name, each in self._workers.items()
            if not each.crash_loop
        )

    async def close(self) -> None:
        """End the workers that are left, and the forkserver."""
        for worker in self._workers.values():
            worker.cancel_restart()
            worker.kill()
        await self.forkserver.close()
        end_children()
        for worker in self._workers.values():
            worker.output.close()

    def _hear(self, message: FromForkserver) -> None:
        match message:
            case Imported():
                self._imported(message)
            case Forked():
                self._forked(message.name, Handle(message.pid, message.start_ticks))
            case ForkFailed():
                self._not_forked(message.name, message.reason)
            case ForkEnded():
                self._exited(message.name, message.status)

    def _imported(self, imported: Imported) -> None:
        if imported.threads:
            threads = f"{many(imported.threads, 'thread')} of a library"
            text = f"{threads} in the process that forks workers: "
            self._send(Trouble(text + "leave OMP_NUM_THREADS and its like out of env.X="))
        if self._credentials:
            self.trust(self._credentials)
        for worker in self._workers.values():
            if worker.process is None and worker.restart is None and not worker.crash_loop:
                self._fork(worker)

    async def _forkserver_lost(self, said: str, given_up: bool) -> None:
        """End the processes of a dead forkserver's workers; they are forked by the next one.

        Where there will be none, give the workers up.
        """
        deadline = time.monotonic() + ENDED_S
        while (left := {*children()} - {*self._others()}) and time.monotonic() < deadline:
            await asyncio.to_thread(end_and_reap, left, deadline)
        self._send(Trouble(f"the process that starts workers ended: {said}"))
        for worker in list(self._workers.values()):
            worker.forking = False
            if worker.pid is not None:
                self._exited(worker.spec.name, signal.SIGKILL)
        for worker in self._workers.values() if given_up else ():
            worker.cancel_restart()
            worker.crash_loop = True
            reason = f"its Python cannot import what workers need: {said}"
            self._report_exit(worker, "import-error", reason)

    def _fork(self, worker: WorkerProcess) -> None:
        """Have the forkserver fork a worker, with pipes for its output and reports.

        A forkserver that is not ready is started; it forks the worker when it is.
        """
        worker.restart = None
        if not self.forkserver.ready:
            self.forkserver.start()
            return
        spec, order = worker.spec, worker.order
        try:
            worker.begin(self._cgroups.oom_kills(), self._cgroups.limit_hits())
            folder = own_folder(self._scratch / spec.name.replace(":", "-"))
        except OSError as error:
            self._not_forked(spec.name, start_problem(error))
            return
        worker.forking = True
        cpus = cpus_of(spec, frozenset(os.sched_getaffinity(0)), self._watch.cpus_near)
        self.forkserver.order(
            ForkWorker(
                spec=spec,
                scheduler_address=order.scheduler_address,
                listen_host=order.listen_host,
                scratch=str(folder),
                lock=str(self._socket.turn),
                cpus=tuple(sorted(cpus)),
                output=worker.pipes[0],
                reports=worker.pipes[1],
                ports=order.ports,
                contact_host=order.contact_host,
            )
        )

    def _read_report(self, worker: WorkerProcess, line: str) -> None:
        if worker.answer is not None and not line.startswith("["):
            worker.answer.dumped.append(line)
            return
        try:
            report = decode(line.encode(), FromWorker)
        except ProtocolError as error:
            self._send(Trouble(f"{worker.spec.name} reported what is no report: {error}"))
            return
        if isinstance(report, WorkerEnding):
            worker.ending = report
        elif isinstance(report, WorkerReady):
            worker.ready = report
            self._send(report)
        elif worker.answer is not None:
            worker.answer.take(report)

    def _forked(self, name: str, process: Handle) -> None:
        worker = self._workers[name]
        worker.process, worker.forking = process, False
        output, reports = worker.pipes
        worker.pipes = []
        worker.output.open(output)
        worker.reports = PipeLines(reports, partial(self._read_report, worker))
        self._send(WorkerStarted(name, process.pid, worker.restarts))
        if worker.stopping:
            worker.kill()

    def _not_forked(self, name: str, reason: str) -> None:
        worker = self._workers[name]
        worker.forking = False
        if worker.stopping:
            self._forget(worker, "stopped", "stopped")
        else:
            self._ended(worker, "crashed", f"it could not be started: {reason}")

    def _exited(self, name: str, status: int) -> None:
        """Handle the end of a worker: report why, and restart it where it is desired."""
        worker = self._workers[name]
        worker.process = None
        worker.output.drain()
        while worker.reports is not None and worker.reports.read():
            continue
        kind, reason = explain(
            worker,
            status,
            oom_kills=self._cgroups.oom_kills(),
            limit_hits=self._cgroups.limit_hits(),
            device=self._watch.trouble_of(worker.spec.device_uuid, worker.began_at),
        )
        if not worker.stopping:
            self._ended(worker, kind, reason)
        else:
            self._forget(worker, kind, reason)
        worker.ended.set()

    def _ended(self, worker: WorkerProcess, kind: str, reason: str) -> None:
        """Report an end that nobody asked for, and start the worker again when that is due."""
        restart_in_s = worker.next_start(kind)
        self._report_exit(worker, kind, reason, restart_in_s)
        if restart_in_s is not None:
            worker.restarts += 1
            worker.restart = asyncio.get_running_loop().call_later(restart_in_s, self._fork, worker)

    def _report_exit(
        self,
        worker: WorkerProcess,
        kind: str,
        reason: str,
        restart_in_s: float | None = None,
    ) -> None:
        """Report the end of a worker."""
        self._send(WorkerExited(worker.spec.name, kind, reason, restart_in_s, worker.crash_loop))

    def _forget(self, worker: WorkerProcess, kind: str, reason: str) -> None:
        """Report the end of a worker that is not to run any more."""
        self._report_exit(worker, kind, reason)
        self._workers.pop(worker.spec.name, None)
        worker.output.close()
