"""A cluster at work that never was: a snapshot for each second, the same each time; its link.

Hosts of mixed models work on a pipeline; what can be wrong with a GPU, a worker or a host is
wrong somewhere, as far as the cluster is large enough for it. Readings follow from the second
and the GPU's number alone.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from gputui.model.readings import DeviceProcess, DeviceReading, HostReading, Owner
from gputui.model.snapshot import (
    ClusterState,
    Event,
    HostState,
    HostStatus,
    RunState,
    RunStatus,
    SchedulerState,
    SchedulerStatus,
    Severity,
    Snapshot,
    TaskGroupStatus,
    TaskSpan,
    WorkerState,
    WorkerStatus,
)
from gputui.model.usage import Failure
from gputui.protocol.frontend import (
    Done,
    EventHappened,
    Previewed,
    Reply,
    Request,
    Scale,
    SnapshotTaken,
    ToFrontend,
)
from gputui.protocol.shared import LogLines
from tests.tui.still import StillLink

START = 1_773_324_300.0
"""2026-03-12 14:05 UTC."""
GIB = 2**30
STOPPED_AT = 40
"""The second at which somebody stops a worker's process."""
PREFIXES = ("normal", "qr", "dot", "getitem", "sum")
ROWS, COLS, TOP = 16_000_000, 1000, 40


def _singular_value(number: int) -> float:
    """Return one of a matrix of uniform numbers in [0, 1): of its mean, or of what is around it."""
    if number == 0:
        return math.sqrt(ROWS * COLS) / 2
    edge = 1 - 0.5 * (1.5 * math.pi * number / COLS) ** (2 / 3)
    return math.sqrt(ROWS / 12) * (1 + math.sqrt(COLS / ROWS) * edge)


VALUES = [round(_singular_value(n), 2) for n in range(TOP)]
RESULT = json.dumps(
    {
        "result": {"singular_values": VALUES, "residual": 3.1e-14, "orthogonality": 8.9e-15},
        "figure": {
            "kind": "line",
            "title": "singular values",
            "x": [*range(1, TOP + 1)],
            "y": VALUES,
            "logarithmic": True,
        },
    }
)
FAILED_LOG = """
13:53:20.114  building
13:53:21.902  computing
13:53:51.020  failed matmul: OutOfMemoryError
""".lstrip()
FAILURE = Failure(
    "OutOfMemoryError",
    "worker node-3:gpu3 ran out of GPU memory in dot: 38.2 of 40.0 GiB held",
    "a smaller block fits: block=10240",
    (
        "Traceback (most recent call last):",
        '  File "gputui/presets/matmul.py", line 71, in multiplied',
        "    return cupy.matmul(a, b)",
        '  File "cupy/_core/_routines_linalg.pyx", line 829, in matmul',
        "    out = ndarray(out_shape, dtype)",
        '  File "cupy/cuda/memory.pyx", line 1521, in _try_malloc',
        "OutOfMemoryError: Out of memory allocating 3,355,443,200 bytes",
    ),
    "node-3:gpu3",
    (
        "distributed.worker - INFO - Starting dot, 3.1 GiB",
        "distributed.worker.memory - WARNING - 92% of GPU memory held",
        "distributed.worker - WARNING - Compute Failed",
        "Key: dot-3-41-7",
    ),
)


def leave_records(folder: Path) -> None:
    """Leave behind in a state folder what the run that failed wrote there."""
    run = folder / "gputui" / "runs" / "r3"
    run.mkdir(parents=True)
    (run / "log.txt").write_text(FAILED_LOG)


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of GPU."""

    name: str
    memory_gib: int
    power_w: float
    clock_mhz: float


MODELS = (
    Model("NVIDIA H100 80GB HBM3", 80, 700.0, 1980.0),
    Model("NVIDIA H100 80GB HBM3", 80, 700.0, 1980.0),
    Model("NVIDIA A100-SXM4-40GB", 40, 400.0, 1410.0),
    Model("NVIDIA L40S", 45, 350.0, 2520.0),
)


def noise(*numbers: float) -> float:
    """Return a number between 0 and 1 that follows from others and looks like none.

    >>> 0 <= noise(3, 7) < 1 and noise(3, 7) == noise(3, 7)
    True
    """
    value = math.sin(
        sum(number * factor for number, factor in zip(numbers, (12.9, 78.2, 37.7), strict=False))
    )
    return (value * 43758.5453) % 1


ON_THEIR_WAY: dict[int, dict[str, Any]] = {
    3: {"state": HostState.PROBING, "devices": ()},
    6: {
        "state": HostState.FAILED,
        "failed_stage": "connecting",
        "devices": (),
        "reason": "connection refused on port 22",
        "hint": "start sshd there, or write its port in the hosts file: node-07:2222",
        "stderr_tail": ("connect to host 10.0.0.16 port 22: Connection refused",),
    },
    8: {"state": HostState.CONNECTING, "devices": ()},
    9: {
        "state": HostState.FAILED,
        "failed_stage": "authenticating",
        "devices": (),
        "reason": "the host refused every key: id_ed25519 (agent), id_rsa (~/.ssh/id_rsa)",
        "hint": "ssh-copy-id node-10, or name the right key in ~/.ssh/config",
        "stderr_tail": ("you@node-10: Permission denied (publickey).",),
    },
    12: {
        "state": HostState.FAILED,
        "failed_stage": "probing",
        "devices": (),
        "reason": "its Python is 3.9.2; the cluster needs 3.11 or later, the same as here",
        "hint": "name another Python: node-13 python=/opt/python3.12/bin/python",
    },
    14: {"state": HostState.CHECKING, "devices": ()},
}
"""Hosts by number that are not up when a cluster starts."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A cluster of so many GPUs, eight to a host."""

    gpus: int
    starting: bool = False
    """Whether its hosts are on their way; then there are no workers yet."""
    on_cpus: bool = False
    """Whether there are CPU workers in place of the GPUs, as busy and as full as those."""

    @property
    def per_host(self) -> int:
        """GPUs of a host."""
        return min(8, self.gpus)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return -(-self.gpus // 8)

    def trouble(self, gpu: int) -> str:
        """Return what is wrong with a GPU: one of everything, then of each again much later."""
        kinds = {
            5: "throttled",
            11: "foreign",
            19: "crashed",
            22: "ecc",
            17: "stopped",
            27: "idle",
            30: "full",
        }
        if self.gpus == 4:
            return "throttled" if gpu == 2 else ""
        return kinds.get(gpu % 250 if gpu > 31 else gpu, "")

    def _is_others(self, gpu: int) -> bool:
        """Whether somebody else's program has a GPU, so that no worker was started there."""
        return gpu == 13 and self.gpus > 8

    def snapshot(self, second: int) -> Snapshot:
        """Return what the head would say at a second."""
        if self.starting:
            return self._on_its_way(second)
        if self.on_cpus:
            return without_gpus(replace(self, on_cpus=False).snapshot(second))
        hosts = tuple(self._host(number, second) for number in range(self.hosts))
        workers = tuple(
            self._worker(host, device, 8 * number + place, second)
            for number, host in enumerate(hosts)
            if host.state is not HostState.FAILED
            for place, device in enumerate(host.devices)
            if not self._is_others(8 * number + place)
        )
        return Snapshot(
            second + 1,
            START + second,
            "lab",
            ClusterState.RUNNING,
            START - 5000,
            SchedulerStatus(
                SchedulerState.RUNNING, "tls://10.0.0.1:8786", 4711, tasks=48211, queued=280
            ),
            hosts=hosts,
            workers=workers,
            groups=groups(second, workers),
            runs=runs(second),
            spans=self._spans(workers, second),
            simulated=True,
        )

    def _on_its_way(self, second: int) -> Snapshot:
        ready = [replace(self._host(number, 0), state_since=START) for number in range(self.hosts)]
        hosts = tuple(
            replace(host, address=f"10.0.0.{10 + number}", **ON_THEIR_WAY.get(number, {}))
            for number, host in enumerate(ready)
        )
        scheduler = SchedulerStatus(SchedulerState.RUNNING, "tls://10.0.0.1:8786", 4711)
        at = START + second
        return Snapshot(
            second + 1, at, "lab", ClusterState.RUNNING, START, scheduler, hosts, simulated=True
        )

    def _host(self, number: int, second: int) -> HostStatus:
        name = "localhost" if self.gpus == 1 else f"node-{number + 1:0{len(str(self.hosts))}d}"
        at = START + second
        if self.hosts > 8 and number % 60 == 9:
            return HostStatus(
                name,
                HostState.FAILED,
                START - 4000,
                "host key of node-10 is not known: SHA256:t4hX…",
                "ssh node-10 once, and accept it",
                failed_stage="authenticating",
                address="10.0.0.19",
            )
        devices = tuple(
            self._device(number, place, second) for place in range(min(8, self.gpus - 8 * number))
        )
        host = HostStatus(
            name,
            HostState.READY,
            START - 4900,
            address=f"10.0.0.{number + 10}",
            reading=HostReading(
                5 + 20 * noise(number, second // 3),
                210 * GIB,
                2048 * GIB,
                9 + 4 * noise(number, second // 9),
                4e7 * (1 + noise(number, second)),
                3e7,
            ),
            read_at=at,
            devices=devices,
        )
        if self.hosts > 3 and number % 40 == 3 and second > 60:
            return replace(
                host,
                state=HostState.SILENT,
                state_since=START + 60,
                read_at=START + 60,
                reason=f"no message for {second - 60} s",
            )
        return host

    def _device(self, host: int, place: int, second: int) -> DeviceReading:
        gpu = 8 * host + place
        model, trouble = MODELS[host % len(MODELS)], self.trouble(gpu)
        wave = 0.5 + 0.5 * math.sin(second / 17 + host) * math.sin(second / 5.3 + gpu)
        util = min(100.0, 62 + 36 * wave + 6 * noise(gpu, second))
        if (second + 11 * host + 30) % 75 < 7:
            util = 4 + 12 * noise(gpu, second)
        stopped = trouble == "stopped" and second > STOPPED_AT
        if trouble in ("idle", "crashed") or stopped:
            util = 0.0
        empty = trouble in ("idle", "crashed")
        share = util / 100
        memory = model.memory_gib * (0.02 if empty else 0.52 + 0.2 * (0.4 if stopped else wave))
        processes = [
            DeviceProcess(20000 + gpu, Owner.OURS, "you", "gputui worker", int(memory * GIB))
        ]
        if self._is_others(gpu):
            util, memory = 31 + 4 * noise(gpu, second), 8.6
            share = util / 100
            command = "python serve.py --model 8b"
            processes = [DeviceProcess(1204, Owner.OTHER, "noor", command, int(8.4 * GIB))]
        if trouble == "foreign":
            processes.append(
                DeviceProcess(911, Owner.OTHER, "mira", "python train.py --epochs 90", 9 * GIB)
            )
        if trouble in ("idle", "crashed"):
            processes = processes[:0] if trouble == "crashed" else processes
        if trouble == "full":
            memory = model.memory_gib * 0.973
        return DeviceReading(
            f"GPU-{gpu:08x}-5be1-4a50-9d8e-{gpu:012x}",
            str(place),
            model.name,
            memory_total_bytes=model.memory_gib * GIB,
            memory_used_bytes=int(max(0.4, memory) * GIB),
            utilization_percent=util,
            temperature_c=None
            if gpu == 6
            else 34 + 30 * share + 3 * noise(gpu) + (22 if trouble == "throttled" else 0),
            power_w=model.power_w
            * (0.12 + 0.76 * share)
            * (0.6 if trouble == "throttled" else 1.0),
            power_limit_w=model.power_w,
            sm_clock_mhz=model.clock_mhz * (0.64 if trouble == "throttled" else 1.0),
            throttle_reasons=("thermal",) if trouble == "throttled" else (),
            ecc_errors=3 if trouble == "ecc" else 0,
            processes=tuple(processes),
        )

    def _worker(
        self, host: HostStatus, device: DeviceReading, gpu: int, second: int
    ) -> WorkerStatus:
        name = f"{host.name}:gpu{device.label}"
        worker = WorkerStatus(
            name,
            host.name,
            WorkerState.BUSY,
            device.uuid,
            device.uuid,
            20000 + gpu,
            f"tls://{host.address}:{40000 + gpu}",
            cpu_percent=88 + 16 * noise(gpu, second),
            rss_bytes=537 * 2**20,
            memory_limit_bytes=256 * GIB,
            open_files=94,
            executing=1,
            ready=int(3 * noise(gpu, second // 2)),
            in_memory=int(5 * noise(gpu, second // 4)),
            managed_bytes=int(3.4 * GIB),
            device_managed_bytes=int(3.1 * GIB),
            spilled_bytes=2 * GIB if gpu % 37 == 17 else 0,
            current_task=PREFIXES[int(4.9 * noise(gpu, second // 5))],
        )
        if host.state is HostState.SILENT:
            silent_s = second - 60.0
            reason = f"no heartbeat for {silent_s:.0f} s"
            return replace(worker, state=WorkerState.SILENT, silent_for_s=silent_s, reason=reason)
        if self.trouble(gpu) == "idle":
            return replace(
                worker,
                state=WorkerState.IDLE,
                executing=0,
                ready=0,
                cpu_percent=1.0,
                current_task=None,
            )
        if self.trouble(gpu) == "stopped" and second > STOPPED_AT:
            silent_s = second - float(STOPPED_AT)
            return replace(
                worker,
                state=WorkerState.SILENT,
                silent_for_s=silent_s,
                stopped=True,
                reason=f"its process is stopped: kill -CONT {worker.pid} on {host.name} "
                "lets it go on",
            )
        if self.trouble(gpu) == "crashed":
            return replace(
                worker,
                state=WorkerState.CRASH_LOOP,
                pid=None,
                address=None,
                restarts=5,
                cpu_percent=None,
                rss_bytes=None,
                executing=None,
                ready=None,
                in_memory=None,
                current_task=None,
                reason="ended 5 times in a row: cudaErrorIllegalAddress in qr",
            )
        return worker

    def _spans(self, workers: tuple[WorkerStatus, ...], second: int) -> tuple[TaskSpan, ...]:
        return tuple(
            TaskSpan(
                worker.name,
                worker.current_task,
                START + second - 1,
                0.4 + 0.6 * noise(number, second),
                erred=worker.current_task == "qr" and noise(number, second, 5) > 0.994,
            )
            for number, worker in enumerate(workers)
            if worker.current_task and noise(number, second, 9) > 0.08
        )


def without_gpus(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with a CPU worker in place of each GPU and its worker."""
    devices = {device.uuid: device for host in snapshot.hosts for device in host.devices}
    workers = (
        replace(
            worker,
            name=worker.name.replace("gpu", "cpu"),
            device_uuid=None,
            seen_device_uuid=None,
            cpu_percent=device.utilization_percent,
            rss_bytes=device.memory_used_bytes,
            memory_limit_bytes=device.memory_total_bytes,
        )
        for worker in snapshot.workers
        if (device := devices[worker.device_uuid or ""])
    )
    hosts = tuple(replace(host, devices=()) for host in snapshot.hosts)
    return replace(snapshot, hosts=hosts, workers=tuple(workers))


def groups(second: int, workers: tuple[WorkerStatus, ...] = ()) -> tuple[TaskGroupStatus, ...]:
    """Return the task groups at a second: each begins when the one before is on its way."""
    executing = Counter(worker.current_task for worker in workers if worker.executing)
    found = []
    for number, prefix in enumerate(PREFIXES):
        total = 9000 - 1500 * number
        done = max(0, min(total, int(total * (second / 150 - 0.12 * number))))
        running = min(total - done, 12) if done else 0
        found.append(
            TaskGroupStatus(
                f"{prefix}-{number}",
                prefix,
                waiting=total - done - running,
                processing=max(running, executing[prefix]),
                executing=executing[prefix],
                memory=done // 5,
                released=done - done // 5 - (3 if prefix == "qr" and done > 50 else 0),
                erred=3 if prefix == "qr" and done > 50 else 0,
                compute_s=done * 0.8,
                nbytes=done * 2**23,
            )
        )
    return tuple(found)


def runs(second: int) -> tuple[RunStatus, ...]:
    """Return a run of every kind: done, failed, cancelled and under way."""
    begun = START - 900
    return (
        RunStatus(
            "r1",
            "random-sum",
            (("size", "500000"),),
            RunState.DONE,
            begun,
            begun + 3.4,
            2500,
            2500,
            summary="sum 6.25e+10, 1.2 standard errors off, 7.4e+10 numbers/s",
        ),
        RunStatus(
            "r2",
            "svd",
            (("rows", str(ROWS)), ("top", str(TOP)), ("check", "true")),
            RunState.DONE,
            begun + 60,
            begun + 64.9,
            960,
            960,
            summary="40 singular values, residual 3.1e-14",
            result_json=RESULT,
        ),
        RunStatus(
            "r3",
            "matmul",
            (("size", "262144"), ("block", "20480")),
            RunState.FAILED,
            begun + 200,
            begun + 231,
            411,
            1200,
            failure=FAILURE,
            restarts=1,
        ),
        RunStatus(
            "r4",
            "dataframe",
            (("partitions", "100"),),
            RunState.CANCELLED,
            begun + 400,
            begun + 440,
            120,
            500,
        ),
        RunStatus(
            "r5",
            "svd",
            (("rows", "64000000"),),
            RunState.RUNNING,
            START - 20,
            None,
            sum(group.finished for group in groups(second)),
            sum(group.total for group in groups(second)),
            stage="computing",
        ),
    )


@lru_cache(maxsize=1)
def events() -> tuple[Event, ...]:
    """Return what happened before."""
    told = (
        (Severity.INFO, "cluster", "started", "lab: 4 hosts, 32 GPUs"),
        *((Severity.INFO, f"node-{n}", "ready", f"10.0.0.{9 + n}") for n in range(1, 5)),
        *((Severity.INFO, f"node-{n}", "scaled", "8 workers registered") for n in range(1, 5)),
        (Severity.INFO, "r1", "done", "random-sum: 1.2 standard errors off"),
        (Severity.WARNING, "node-1:gpu5", "throttled", "thermal slowdown at 88 °C"),
        (Severity.INFO, "r2", "done", "svd: 40 singular values, residual 3.1e-14"),
        (Severity.INFO, "r3", "started", "matmul: size=262144 block=20480"),
        *(
            (
                Severity.ERROR,
                "node-3:gpu3",
                "crashed",
                f"cudaErrorIllegalAddress in qr; restarted ({n} of 5)",
            )
            for n in range(1, 6)
        ),
        (
            Severity.ERROR,
            "r3",
            "failed",
            "OutOfMemoryError: worker node-3:gpu3 ran out of GPU memory",
        ),
        (Severity.INFO, "r4", "cancelled", "dataframe: cancelled by you"),
        (Severity.INFO, "r5", "started", "svd: rows=64000000"),
        (Severity.ERROR, "node-3:gpu1", "silent", "its process is stopped"),
        (Severity.WARNING, "node-4", "silent", "no message for 10 s"),
    )
    return tuple(
        Event(number, START - 820 + 40 * number, severity, subject, kind, text)
        for number, (severity, subject, kind, text) in enumerate(told, 1)
    )


def log_lines(lab: Lab) -> tuple[LogLines, ...]:
    """Return what workers printed."""
    workers = lab.snapshot(0).workers
    said = (
        "{},120 - distributed.worker - INFO - Starting qr, 512 MiB",
        "{},480 - distributed.worker - INFO - Sent 256 MiB in 3.1 ms",
        "{},910 - distributed.worker.memory - WARNING - 71% of memory held",
        "step {}: loss {:.4f}",
    )

    def line(n: int) -> str:
        at = datetime.fromtimestamp(START + n)
        if n % 4 == 3:
            return said[3].format(n, 0.93 * 0.99**n)
        return said[n % 4].format(f"{at:%Y-%m-%d %H:%M:%S}")

    return tuple(LogLines(workers[n % len(workers)].name, (line(n),), START + n) for n in range(80))


class LabConnection(StillLink):
    """A link that says each second of a lab up to a moment, and then nothing more."""

    def __init__(self, lab: Lab, seconds: int) -> None:
        super().__init__()
        self._lab, self._seconds, self.said = lab, seconds, asyncio.Event()

    async def request(self, message: Request) -> Reply:
        """Say what a change would do, and do nothing."""
        if isinstance(message, Scale):
            return Previewed(0, (), ("node-4:gpu7",), "its 2 results (1.4 GiB) move to others")
        return Done(0, "")

    async def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield what the head would say."""
        if not self._lab.starting:
            for event in events():
                yield EventHappened(event)
            for lines in log_lines(self._lab):
                yield lines
        for second in range(self._seconds + 1):
            yield SnapshotTaken(self._lab.snapshot(second))
        self.said.set()
        await asyncio.Event().wait()
