"""What goes wrong in a simulated cluster, and when: so that every alarm can be seen once.

Each trouble comes at a fixed second after the start and again after `PERIOD_S`; who it strikes
is drawn from the simulator's seed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gputui.demo import chatter
from gputui.demo.devices import CONTEXT_BYTES, Worker
from gputui.readings import DeviceProcess, Owner
from gputui.snapshot import HostState, Severity, WorkerState

if TYPE_CHECKING:
    from gputui.demo.simulator import Simulator

PERIOD_S = 600
FOREIGN_COMMANDS = (
    ("mira", "python train.py --config configs/large.yaml --resume latest"),
    ("jon", "/opt/conda/bin/python -m vllm.entrypoints.openai.api_server"),
    (None, None),
)


class Troubles:
    """The troubles of one simulated cluster."""

    def __init__(self, simulator: "Simulator") -> None:
        self._simulator = simulator
        self._silent: str | None = None
        self._schedule: dict[int, Callable[[float], None]] = {
            8: self._foreign_process,
            22: self._wrong_device,
            35: self._crash,
            48: self._heat,
            70: self._silence,
            78: self._reconnecting,
            82: self._return,
            100: self._ecc,
            125: self._scheduler_busy,
            131: self._scheduler_back,
            170: self._crash,
            210: self._cool,
            240: self._lose_gpu,
        }

    def happen(self, second: int, at: float) -> None:
        """Let happen what is due in this second after the start."""
        trouble = self._schedule.get(second % PERIOD_S)
        if trouble is not None:
            trouble(at)

    def _someone(self) -> Worker | None:
        """Choose a worker that is up, on a host that answers."""
        hosts = self._simulator.population.hosts
        up = [
            worker
            for worker in self._simulator.population.workers.values()
            if worker.state.up and hosts[worker.host].state is HostState.READY
        ]
        return self._simulator.rng.choice(up) if up else None

    def _tell(self, at: float, severity: Severity, subject: str, kind: str, text: str) -> None:
        self._simulator.event_log.tell(at, severity, subject, kind, text)

    def _foreign_process(self, at: float) -> None:
        rng = self._simulator.rng
        for user, command in FOREIGN_COMMANDS[: 1 + len(self._simulator.population.hosts) // 8]:
            if (worker := self._someone()) is None:
                return
            memory = rng.randint(6, 40) * 2**30 + CONTEXT_BYTES
            worker.gpu.foreign = DeviceProcess(
                rng.randint(2_000, 30_000), Owner.OTHER, user, command, memory
            )
            if user is None:
                worker.gpu.foreign = DeviceProcess(0, Owner.UNKNOWN, None, None, memory)
            text = f"{user or 'an unknown process'} uses {memory / 2**30:.1f} GiB of this GPU"
            self._tell(at, Severity.WARNING, worker.name, "alarm", text)

    def _wrong_device(self, at: float) -> None:
        worker = self._someone()
        if worker is not None and len(self._simulator.population.hosts) > 7:
            neighbours = self._simulator.population.hosts[worker.host].gpus
            other = next((gpu for gpu in neighbours if gpu is not worker.gpu), worker.gpu)
            worker.seen_uuid = other.uuid
            text = f"its CUDA context is on {other.uuid}, not on its own GPU"
            self._tell(at, Severity.ERROR, worker.name, "alarm", text)

    def _crash(self, at: float) -> None:
        if (worker := self._someone()) is not None:
            reason = "killed by the kernel's out-of-memory killer (signal 9)"
            self._simulator.event_log.log(at, worker.name, chatter.last_log_lines(worker))
            self._tell(at, Severity.ERROR, worker.name, "crashed", f"{reason}; again in 2 s")
            self._simulator.population.crash(worker, at, reason)

    def _heat(self, at: float) -> None:
        if (worker := self._someone()) is not None:
            worker.gpu.hot = True
            text = "throttled: thermal, 1,267 of 1,980 MHz"
            self._tell(at, Severity.WARNING, worker.name, "alarm", text)

    def _cool(self, at: float) -> None:
        for worker in self._simulator.population.workers.values():
            if worker.gpu.hot:
                worker.gpu.hot = False
                self._tell(at, Severity.INFO, worker.name, "recovered", "no longer throttled")

    def _silence(self, at: float) -> None:
        if (worker := self._someone()) is not None and len(self._simulator.population.hosts) > 1:
            host = self._simulator.population.hosts[worker.host]
            self._silent = host.name
            host.enter(HostState.SILENT, at, "no answer for 3 s")
            self._tell(at, Severity.WARNING, host.name, "silent", "no answer for 3 s")

    def _reconnecting(self, at: float) -> None:
        host = self._simulator.population.hosts.get(self._silent or "")
        if host is not None and host.state is HostState.SILENT:
            host.enter(HostState.RECONNECTING, at, "the connection was lost: connecting again")

    def _return(self, at: float) -> None:
        host = self._simulator.population.hosts.get(self._silent or "")
        if host is not None and host.state is HostState.RECONNECTING:
            host.enter(HostState.READY, at)
            for worker in host.workers:
                worker.task_ends_at = max(worker.task_ends_at, at + 0.1)
            text = "reconnected within its lease, every worker alive"
            self._tell(at, Severity.INFO, host.name, "reconnected", text)

    def _ecc(self, at: float) -> None:
        if (worker := self._someone()) is not None:
            worker.gpu.ecc_errors += 3
            text = "3 uncorrected ECC errors"
            self._tell(at, Severity.WARNING, worker.name, "alarm", text)

    def _scheduler_busy(self, at: float) -> None:
        self._simulator.scheduler_busy_since = at
        text = "its loop does not answer; the workers go on"
        self._tell(at, Severity.WARNING, "scheduler", "busy", text)

    def _scheduler_back(self, at: float) -> None:
        self._simulator.scheduler_busy_since = None
        self._tell(at, Severity.INFO, "scheduler", "recovered", "answers again after 6 s")

    def _lose_gpu(self, at: float) -> None:
        worker = self._someone()
        if worker is not None and len(self._simulator.population.hosts) > 3:
            worker.gpu.fall_off_the_bus()
            worker.lose_all()
            worker.state, worker.reason = WorkerState.PARKED, "its GPU is lost (Xid 79)"
            worker.read()
            self._simulator.population.hosts[worker.host].moved = True
            text = "the GPU has fallen off the bus (Xid 79)"
            self._tell(at, Severity.ERROR, worker.name, "lost", text)
