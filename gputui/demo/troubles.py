"""The faults of a simulated cluster, and their times: every alarm can be seen once.

Each trouble comes at a fixed second after the start and again after `PERIOD_S`; who it strikes
is drawn from the seed. It strikes an agent, a GPU or the scheduler: what becomes of it, an event,
an alarm, a worker that is started again, is the head's to find out.
"""

import asyncio
import random
from collections.abc import Callable

from gputui.demo import chatter
from gputui.demo.devices import CONTEXT_BYTES, SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent
from gputui.demo.simulated_scheduler import SimulatedScheduler, Working
from gputui.model.readings import DeviceProcess, Owner
from gputui.protocol.agent import WorkerReady

PERIOD_S = 600
FOREIGN_COMMANDS = (
    ("mira", "python train.py --config configs/large.yaml --resume latest"),
    ("jon", "/opt/conda/bin/python -m vllm.entrypoints.openai.api_server"),
    (None, None),
)


class Troubles:
    """The troubles of one simulated cluster of so many hosts."""

    def __init__(self, scheduler: SimulatedScheduler, hosts: int, seed: int) -> None:
        self._scheduler, self._hosts = scheduler, hosts
        self._rng = random.Random(f"{seed}:troubles")
        self._away: SimulatedAgent | None = None
        self._hot: list[SimulatedGpu] = []
        self._schedule: dict[int, Callable[[], None]] = {
            8: self._foreign_process,
            22: self._wrong_device,
            35: self._crash,
            48: self._heat,
            70: self._silence,
            78: self._return,
            100: self._ecc,
            125: self._scheduler_busy,
            131: self._scheduler_back,
            170: self._crash,
            210: self._cool,
            240: self._lose_gpu,
        }

    async def happen(self) -> None:
        """Let everything happen in its second, until cancelled."""
        second, due = 0, asyncio.get_running_loop().time()
        while True:
            second, due = second + 1, due + 1.0
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            if (trouble := self._schedule.get(second % PERIOD_S)) is not None:
                trouble()

    def _someone(self) -> tuple[Working, SimulatedGpu] | None:
        """Choose a worker that is up, on a host that answers."""
        up = [
            (working, working.worker.gpu)
            for working in self._scheduler.workers.values()
            if working.worker.gpu is not None and not working.agent.silent
        ]
        return self._rng.choice(up) if up else None

    def _foreign_process(self) -> None:
        for user, command in FOREIGN_COMMANDS[: 1 + self._hosts // 8]:
            if (someone := self._someone()) is not None:
                memory = self._rng.randint(6, 40) * 2**30 + CONTEXT_BYTES
                owner = Owner.OTHER if user else Owner.UNKNOWN
                pid = self._rng.randint(2_000, 30_000) if user else 0
                someone[1].foreign = DeviceProcess(pid, owner, user, command, memory)

    def _wrong_device(self) -> None:
        if self._hosts > 7 and (someone := self._someone()) is not None:
            working, gpu = someone
            worker, others = working.worker, [g for g in working.agent.gpus if g is not gpu]
            worker.seen_uuid = others[0].uuid if others else worker.seen_uuid
            working.agent.say(WorkerReady(worker.name, worker.address, worker.seen_uuid))

    def _crash(self) -> None:
        if (someone := self._someone()) is not None:
            agent, name = someone[0].agent, someone[0].worker.name
            reason = "killed by the kernel's out-of-memory killer (signal 9)"
            last = chatter.last_log_lines(name)
            agent.crash(name, reason, kind="oom-killer", last=last, again_s=2.0)

    def _heat(self) -> None:
        if (someone := self._someone()) is not None:
            someone[1].hot = True
            self._hot.append(someone[1])

    def _cool(self) -> None:
        for gpu in self._hot:
            gpu.hot = False
        self._hot.clear()

    def _silence(self) -> None:
        if self._hosts > 1 and (someone := self._someone()) is not None:
            self._away = someone[0].agent
            self._away.silent, self._away.reachable = True, False

    def _return(self) -> None:
        if self._away is not None:
            self._away.silent, self._away.reachable = False, True

    def _ecc(self) -> None:
        if (someone := self._someone()) is not None:
            someone[1].ecc_errors += 3

    def _scheduler_busy(self) -> None:
        self._scheduler.busy = True

    def _scheduler_back(self) -> None:
        self._scheduler.busy = False

    def _lose_gpu(self) -> None:
        if self._hosts > 3 and (someone := self._someone()) is not None:
            working, gpu = someone
            gpu.lost = True
            reason = "its GPU is lost (Xid 79)"
            working.agent.crash(working.worker.name, reason, kind="cuda-error", again_s=None)
