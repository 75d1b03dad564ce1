"""The faults of a simulated cluster: hosts that are refused, and every alarm, once.

What raises an alarm comes at a fixed second after the start and again after `PERIOD_S`; which
worker it strikes is drawn from the seed. What becomes of it, an event, an alarm, a restart, is the
head's to find out.
"""

import asyncio
import random
from collections.abc import Sequence

from gputui.demo.devices import CONTEXT_BYTES, SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedHosts
from gputui.demo.simulated_scheduler import SimulatedScheduler
from gputui.model.readings import Claim, DeviceProcess, Note, Owner
from gputui.model.snapshot import HostState
from gputui.protocol.agent import WorkerReady

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


def spread(hosts: SimulatedHosts, names: list[str], rng: random.Random, *, questions: bool) -> None:
    """Choose the hosts that will be refused, and the one whose key is not known.

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
    if len(names) > 2 and questions:
        unknown = hosts.agent(next(name for name in names[1:] if name not in refused))
        unknown.fingerprint = "".join(rng.choices("ABCDEFabcdefghijkmnpq23456789+/", k=43))


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
    second, due = 0, asyncio.get_running_loop().time()
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
