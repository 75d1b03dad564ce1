"""A simulated cluster in this process: a real head on simulated hosts and a simulated scheduler.

Some of its hosts are refused, and every alarm is raised, once: what raises one comes at a fixed
second after the start and again after `PERIOD_S`; which worker it strikes is drawn from the seed.
What becomes of it, an event, an alarm, a restart, is the head's to find out.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast
from uuid import UUID

from gputui import presets
from gputui.client.head_connection import HeadConnection
from gputui.demo.devices import A100, CONTEXT_BYTES, H200, SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedHosts
from gputui.demo.simulated_runs import SimulatedRun
from gputui.demo.simulated_scheduler import SimulatedScheduler
from gputui.errors import HeadError
from gputui.head.requests import head_of
from gputui.model.readings import Claim, DeviceProcess, Note, Owner
from gputui.model.snapshot import HostState
from gputui.process.background import Background, within
from gputui.process.child import Child
from gputui.protocol.agent import WorkerReady
from gputui.protocol.frontend import ReportRun, StartRun
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.streams import memory_streams

logging.getLogger("gputui.head").addHandler(logging.NullHandler())  # its events are on the screen


SHARED = 2
"""Which host is other people's, too."""
REPORT_S = 1.0
FIRST_RUN_S, BETWEEN_RUNS_S = 2.0, 7.0
OWN_RUNS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("random-sum", (("size", "500000"), ("seed", "1"))),
    ("svd", (("rows", "16000000"), ("cols", "1000"))),
    ("matmul", (("size", "131072"), ("dtype", "float32"))),
    ("torch", (("steps", "2000"),)),
)
"""What runs by itself, over and over, so that there is something to see."""
FAILING = 2
"""Which of them fails, once, where there are troubles."""
PERIOD_S = 600
HOUR_S = 3600.0
FOREIGN = {
    8: ("mira", "python train.py --config configs/large.yaml --resume latest"),
    9: ("jon", "/opt/conda/bin/python -m vllm.entrypoints.openai.api_server"),
    10: (None, None),
}
"""Other people's processes, and one of nobody knows whom."""
KILLED = "killed by the kernel's out-of-memory killer (signal 9)"
LAST_LOG_LINES = (
    "distributed.worker.memory - WARNING - Unmanaged memory use is high. This may indicate"
    " a memory leak or the memory may not be released to the OS",
    "distributed.worker.memory - WARNING - Worker is at 97% memory usage.",
    "Killed",
)


OLD_DASK = (("dask", "2024.5.1"), ("distributed", "2024.5.1"), ("numpy", "1.26.4"))


class Demo:
    """One simulated cluster."""

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        seed: int = 0,
        troubles: bool = True,
        pace: float = 1.0,
    ) -> None:
        """Make a cluster of so many hosts of so many GPUs.

        With `troubles`, some hosts are refused, and now and then a worker crashes, a host falls
        silent, a GPU is throttled. Hosts and workers take `pace` times the usual time to come up;
        0 is at once.
        """
        hosts, gpus_per_host = shape
        names = [f"node-{number:0{max(2, len(str(hosts)))}d}" for number in range(1, hosts + 1)]
        labels = [str(label) for label in range(gpus_per_host)]

        def new_agent(host: str, number: int) -> SimulatedAgent:
            rng, model = random.Random(f"{seed}:{host}:gpus"), H200 if number % 12 else A100
            gpus = []
            for label in labels:
                others = tuple(each for each in labels if each != label)
                links = replace(model.links, nvlink_peers=others)
                gpus.append(
                    SimulatedGpu(label, f"GPU-{UUID(int=rng.getrandbits(128))}", model, links)
                )
            if troubles and number == SHARED and len(gpus) > 2:
                share(gpus[1:], time.time())
            return SimulatedAgent(host, number, gpus, seed=seed, pace=pace)

        self._tasks = Background(
            lambda what, error: self.head.stop(f"{what} failed: {error}", failed=True)
        )
        self.hosts = SimulatedHosts(new_agent)
        if troubles:
            spread(self.hosts, names, random.Random(seed))
        self.scheduler = SimulatedScheduler(self.hosts.agents, seed)
        self._failures, self._own_runs = troubles, 0
        self._troubles = partial(happen, self.scheduler, hosts, seed) if troubles else None
        self.head = head_of(
            ConfigureHead(
                "demo", "\n".join(names), cluster_id="demo", interactive=True, busy="skip"
            ),
            opener=self.hosts,
            scheduler=lambda _cluster_id: cast(Child, self.scheduler),
            run=self._start_run,
            simulated=True,
        )

    async def open(self) -> HeadConnection:
        """Start the head, and return a screen's connection to it, with which the cluster ends."""
        opened = asyncio.Event()
        running = self._tasks.start(self.head.run(lambda _socket: opened.set()), "the head")
        await opened.wait()
        screen = await self.attach("screen", snapshots=True)
        screen.at_close = partial(self._close, running)
        self._tasks.start(self._begin_runs(screen), "runs")
        if self._troubles is not None:
            self._tasks.start(self._troubles(), "troubles")
        return screen

    async def attach(self, frontend: str, *, snapshots: bool = False) -> HeadConnection:
        """Attach a frontend."""
        own, heads = memory_streams()
        self.head.server.accept(heads)
        return await HeadConnection.over(own, frontend=frontend, snapshots=snapshots)

    async def _close(self, running: asyncio.Task[None]) -> None:
        """End the cluster, where it has not ended by itself."""
        self.head.stop("the demo was closed")
        await asyncio.wait([running])
        await self._tasks.close()

    def _start_run(self, _name: str, _cluster_id: str, request: StartRun, id: str) -> Child:
        """Start a run; raises PresetError where the request is wrong."""
        presets.parse(presets.get(request.preset), dict(request.parameters)).refuse_mistakes()
        fails = self._failures and self._own_runs == FAILING + 1
        self._failures = self._failures and not fails
        run = SimulatedRun(id, request, len(self.scheduler.workers), fails=fails)
        self.scheduler.runs.insert(0, run)
        self._tasks.start(self._report(run), f"run {id}")
        return cast(Child, run)

    async def _report(self, run: SimulatedRun) -> None:
        """Report a run until it has ended, as the frontend that its command would be."""
        connection = await self.attach("run")
        while not (status := run.status()).state.ended:
            connection.send(ReportRun(status))
            await within(REPORT_S, run.cancelled.wait())
        connection.send(ReportRun(status))
        await connection.close()
        self.scheduler.runs.remove(run)
        run.ended.set()

    async def _begin_runs(self, connection: HeadConnection) -> None:
        """Begin a run of our own whenever none has run for a while, until cancelled."""
        idle_s, workers = 0.0, 0
        while True:
            await asyncio.sleep(1.0)
            before, workers = workers, len(self.scheduler.workers)
            idle = workers and workers == before and not self.scheduler.runs
            idle_s = idle_s + 1.0 if idle else 0.0
            if idle_s >= (BETWEEN_RUNS_S if self._own_runs else FIRST_RUN_S):
                preset, parameters = OWN_RUNS[self._own_runs % len(OWN_RUNS)]
                self._own_runs += 1
                with contextlib.suppress(HeadError):
                    await connection.request(StartRun(0, preset, parameters))


def spread(hosts: SimulatedHosts, names: list[str], rng: random.Random) -> None:
    """Choose the hosts that will be refused.

    What the fleet finds itself, another Dask or a port that cannot be reached, is the agent's.
    """
    refused = rng.sample(names[1:], max(2, len(names) // 40) if len(names) > 5 else 0)
    for number, agent in enumerate(map(hosts.agent, refused)):
        host = agent.host
        match number % 4:
            case 0:
                said = f"{host}: Permission denied (publickey,password)."
                why = "the host refused every key", f"ssh-copy-id {host}"
                agent.refused = (HostState.AUTHENTICATING, *why, said)
            case 1:
                said = f"connect to host {host} port 22: Connection refused"
                hint = f"start sshd there, or write the port: {host}:2222"
                agent.refused = HostState.CONNECTING, "connection refused on port 22", hint, said
                agent.mends = True
            case 2:
                agent.packages = OLD_DASK
            case _:
                agent.reach_error = "[Errno 110] Connection timed out"


def share(gpus: Sequence[SimulatedGpu], now: float) -> None:
    """Have other people claim the first GPUs of a host: one keeps a promise, one is over it."""
    training, notebook = gpus[:2]
    command = "torchrun --nproc-per-node 1 finetune.py --model 8b"
    began, used_bytes = now - 2 * HOUR_S, 61 * 2**30
    training.foreign = DeviceProcess(4711, Owner.OTHER, "mira", command, used_bytes, began)
    training.claim = Claim(4710, "mira", Note("fine-tuning", began, now + 3.5 * HOUR_S))
    training.waiting = ("noor",)
    notebook.claim = Claim(815, "jon", Note("notebook", now - 11 * HOUR_S, now - 3 * HOUR_S))
    notebook.idle_since = now - 4 * HOUR_S


async def happen(scheduler: SimulatedScheduler, hosts: int, seed: int) -> None:
    """Strike random workers of a cluster of so many hosts, on schedule, until cancelled."""
    rng = random.Random(f"{seed}:troubles")
    away: SimulatedAgent | None = None
    hot: SimulatedGpu | None = None
    second, due = 0, asyncio.get_running_loop().time() + 0.5  # between the scheduler's counts
    while True:
        second, due = second + 1, due + 1.0
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        up = [each for each in scheduler.workers.values() if not each.agent.silent]
        worker = rng.choice(up) if up else None
        if worker is None or (gpu := worker.gpu) is None:
            continue
        agent = worker.agent
        match second % PERIOD_S:
            case 8 | 9 | 10 as at if at == 8 or hosts >= 8 * (at - 8):
                user, command = FOREIGN[at]
                owner = Owner.OTHER if user else Owner.UNKNOWN
                pid = rng.randint(2_000, 30_000) if user else 0
                used_bytes = rng.randint(6, 40) * 2**30 + CONTEXT_BYTES
                gpu.foreign = DeviceProcess(pid, owner, user, command, used_bytes)
            case 22 if hosts > 7:
                worker.seen_uuid = next((g.uuid for g in agent.gpus if g is not gpu), gpu.uuid)
                agent.say(WorkerReady(worker.name, worker.address, worker.seen_uuid))
            case 35 | 170:
                agent.crash(
                    worker.name, KILLED, kind="oom-killer", last=LAST_LOG_LINES, again_s=2.0
                )
            case 48:
                gpu.hot, hot = True, gpu
            case 70 if hosts > 1:
                away, agent.silent, agent.reachable = agent, True, False
            case 77 if away is not None:
                away.silent, away.reachable = False, True
            case 100:
                gpu.ecc_errors += 3
            case 125 | 131 as at:
                scheduler.busy = at == 125
            case 210 if hot is not None:
                hot.hot = False
            case 240 if hosts > 3:
                gpu.lost = True
                reason = "its GPU is lost (Xid 79)"
                agent.crash(worker.name, reason, kind="cuda-error", again_s=None)
