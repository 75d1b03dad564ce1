"""The GPUs of this host, read all the time: one thread opens NVML, then one reads each GPU.

Facts and telemetry take what was read last and never wait for NVML; a GPU that has not answered
for `STALE_AFTER_S` is marked so. The environment decides which devices are usable.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from gputui.agent.allowed_gpus import ambiguous_order, of_a_job_without_gpus, selected
from gputui.agent.claims import Claims
from gputui.agent.gpu.nvml import Gpu, Nvml, Xids
from gputui.agent.gpu.processes import Processes
from gputui.errors import DevicesError
from gputui.model.readings import IMPLIED_PERCENT, DeviceReading, waiting_for, xid_words

STALE_AFTER_S = 5.0
"""And at least three intervals."""
NONE_OF_THE_JOB = (
    "its Slurm job has no GPU of it: ask for some, such as salloc --gpus-per-node=1; where Slurm "
    "does not give out the GPUs, write env.CUDA_VISIBLE_DEVICES=0,1 on its line"
)

Readings = tuple[DeviceReading, ...]

T = TypeVar("T")


class Sampler(Generic[T]):
    """Calls `sample` every `interval_s` seconds in a daemon thread, until `ended` is set.

    Whatever may hang (NVML, a network file system) is asked in such a thread, so that a reader of
    the last value never waits for it.
    """

    def __init__(
        self,
        sample: Callable[[], T],
        first: T,
        interval_s: float,
        name: str,
        ended: threading.Event,
    ) -> None:
        self.value = first
        """The last sample, or `first` before one was taken."""
        self.sampled = threading.Event()
        self._sampled_at = time.monotonic()
        self._sample = sample
        self._interval_s = interval_s
        self._ended = ended
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def age_s(self) -> float:
        """Seconds since the last sample was taken."""
        return time.monotonic() - self._sampled_at

    def _run(self) -> None:
        while not self._ended.is_set():
            self.value = self._sample()
            self._sampled_at = time.monotonic()
            self.sampled.set()
            self._ended.wait(self._interval_s)


class DeviceWatch:
    """Reads every GPU each `interval_s` seconds from `start` to `stop`.

    `environ` is the environment whose CUDA_VISIBLE_DEVICES and Slurm allocation count;
    `idle_since` is kept: GPU → since when it has done nothing, of those that do nothing.
    """

    def __init__(
        self,
        cluster_id: str,
        *,
        environ: Mapping[str, str],
        interval_s: float = 1.0,
        stale_after_s: float = STALE_AFTER_S,
        claims: Claims | None = None,
        idle_since: dict[str, float] | None = None,
    ) -> None:
        self.cuda_version = ""
        self.processes = Processes(cluster_id)
        self.opened = threading.Event()
        """Set when NVML was opened, or cannot be."""
        self.stopped = threading.Event()
        self._environ = environ
        self._interval_s = interval_s
        self._stale_after_s = max(stale_after_s, 3 * interval_s)
        self._claims = claims
        self._idle_since = {} if idle_since is None else idle_since
        self._gpus: tuple[tuple[Gpu, Sampler[Readings]], ...] = ()
        self._xids: Sampler[dict[str, tuple[int, float]]] | None = None
        self._warnings: tuple[str, ...] = ()

    def start(self) -> None:
        """Begin to open NVML; `wait` returns when there is something to read."""
        threading.Thread(target=self._open, name="nvml", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until every GPU was read once or NVML is known to be unavailable."""
        until = time.monotonic() + timeout_s
        return self.opened.wait(timeout_s) and all(
            sampler.sampled.wait(max(0.0, until - time.monotonic())) for _, sampler in self._gpus
        )

    def stop(self) -> None:
        """Have the threads end; one that hangs in NVML ends with the process."""
        self.stopped.set()

    def devices(self) -> Readings:
        """Return every GPU and MIG instance as it was read last, in NVML's order."""
        readings = [
            replace(reading, stale=True) if sampler.age_s > self._stale_after_s else reading
            for gpu, sampler in self._gpus
            for reading in self._with_xid(gpu, sampler.value)
        ]
        minors = {gpu.label: gpu.minor for gpu, _ in self._gpus if gpu.minor is not None}
        usable, now = selected(self._environ, readings, minors), time.time()
        return tuple(
            replace(
                reading,
                usable=reading.usable and reading.uuid in usable,
                idle_since=self._idle(reading, now),
            )
            for reading in (self._claimed(readings, self._claims) if self._claims else readings)
        )

    def _with_xid(self, gpu: Gpu, readings: Readings) -> Readings:
        """Return readings with the last Xid of their GPU, if it has had one."""
        found = self._xids.value.get(gpu.last[0].uuid) if self._xids else None
        if found is None:
            return readings
        return tuple(replace(each, xid=found[0], xid_at=found[1]) for each in readings)

    def trouble_of(self, uuid: str | None, since: float) -> str:
        """Say what has befallen a device since a moment."""
        for reading in self.devices() if uuid else ():
            if reading.uuid == uuid and reading.xid_at and reading.xid_at >= since:
                return f"Xid {xid_words(reading.xid)}"
            if reading.uuid == uuid and reading.lost:
                return "it fell off the bus"
        return ""

    def _claimed(self, readings: list[DeviceReading], claims: Claims) -> list[DeviceReading]:
        """Return readings with who claims each GPU, and who waits for it."""
        seen, tickets = claims.seen(reading.uuid for reading in readings), claims.tickets()
        before = [ticket for ticket in tickets if ticket.name < claims.ticket]
        return [
            replace(
                reading,
                claim=seen.get(reading.uuid),
                waiting=waiting_for(reading.uuid, tickets),
                ahead=len(waiting_for(reading.uuid, before)),
            )
            for reading in readings
        ]

    def _idle(self, reading: DeviceReading, now: float) -> float | None:
        """Return since when a GPU has done nothing; its claim's holder may have seen it longer."""
        if reading.utilization_percent is None or reading.utilization_percent >= IMPLIED_PERCENT:
            self._idle_since.pop(reading.uuid, None)
            return None
        own = self._idle_since.setdefault(reading.uuid, now)
        noted = reading.claim.note.idle_since if reading.claim else None
        return own if noted is None else min(own, noted)

    def cpus_near(self, uuid: str) -> frozenset[int]:
        """Return the CPUs to pin a worker on this device to; all usable ones if unknown."""
        for gpu, sampler in self._gpus:
            if any(reading.uuid == uuid for reading in sampler.value):
                return gpu.cpus
        return frozenset(os.sched_getaffinity(0))

    def warnings(self) -> tuple[str, ...]:
        """Return why GPUs are missing, restricted or misleading, with the hint."""
        if not self.opened.is_set():
            return ("NVML does not answer: does nvidia-smi work on this host?",)
        restricted = (gpu.warning for gpu, _ in self._gpus if gpu.warning)
        warnings = (*self._warnings, *restricted)
        if self._gpus and of_a_job_without_gpus(self._environ):
            return (*warnings, NONE_OF_THE_JOB)
        if not ambiguous_order(self._environ, self.devices()):
            return warnings
        return (
            *warnings,
            "CUDA_VISIBLE_DEVICES has indices, the GPUs here differ, and CUDA may count them in "
            "another order than nvidia-smi: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use UUIDs",
        )

    def _open(self) -> None:
        """Open NVML and begin to read each GPU (in the thread that `start` began)."""
        try:
            nvml = Nvml.open()
        except DevicesError as error:
            self._warnings = (str(error),)
        else:
            self.cuda_version = nvml.cuda_version()
            gpus, warnings = nvml.gpus(self.processes.identify)
            self._warnings = tuple(warnings)
            self._gpus = tuple((gpu, self._sampler(gpu)) for gpu in gpus)
            xids = Xids(nvml, gpus)
            self._xids = Sampler(xids.read, {}, self._interval_s, "xids", self.stopped)
        self.opened.set()

    def _sampler(self, gpu: Gpu) -> Sampler[Readings]:
        name = f"gpu {gpu.label}"
        return Sampler(gpu.read, gpu.last, self._interval_s, name, self.stopped)
