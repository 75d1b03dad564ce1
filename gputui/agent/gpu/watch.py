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

from gputui.agent.allowed_gpus import ambiguous_order, selected
from gputui.agent.claims import Claims
from gputui.agent.gpu.nvml import Gpu, Nvml
from gputui.agent.gpu.processes import Processes
from gputui.errors import DevicesError
from gputui.model.readings import DeviceReading, waiting_for

STALE_AFTER_S = 5.0
"""And at least three intervals."""

Readings = tuple[DeviceReading, ...]

T = TypeVar("T")


class Sampler(Generic[T]):
    """Calls `sample` every `interval_s` seconds in a daemon thread, from `start` to `stop`.

    Whatever may hang (NVML, a network file system) is asked in such a thread, so that a reader of
    the last value never waits for it.
    """

    def __init__(self, sample: Callable[[], T], first: T, interval_s: float, name: str) -> None:
        self._sample = sample
        self._last = (time.monotonic(), first)
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._sampled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End, waiting at most `timeout_s` for a sample under way; return whether it ended."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Wait until a first sample was taken; return whether it was within `timeout_s`."""
        return self._sampled.wait(timeout_s)

    @property
    def value(self) -> T:
        """The last sample, or `first` before one was taken."""
        return self._last[1]

    @property
    def age_s(self) -> float:
        """Seconds since that sample was taken."""
        return time.monotonic() - self._last[0]

    def _run(self) -> None:
        while not self._ended.is_set():
            value = self._sample()
            self._last = (time.monotonic(), value)
            self._sampled.set()
            self._ended.wait(self._interval_s)


class DeviceWatch:
    """Reads every GPU each `interval_s` seconds from `start` to `stop`.

    `environ` is the environment whose CUDA_VISIBLE_DEVICES and Slurm allocation count.
    """

    def __init__(
        self,
        cluster_id: str,
        *,
        environ: Mapping[str, str] | None = None,
        interval_s: float = 1.0,
        stale_after_s: float = STALE_AFTER_S,
        claims: Claims | None = None,
    ) -> None:
        self.driver_version = ""
        self.cuda_version = ""
        self._environ = dict(os.environ if environ is None else environ)
        self._interval_s = interval_s
        self._stale_after_s = max(stale_after_s, 3 * interval_s)
        self.processes = Processes(cluster_id)
        self._claims = claims
        self._gpus: tuple[Gpu, ...] = ()
        self._samplers: tuple[Sampler[Readings], ...] = ()
        self._warnings: tuple[str, ...] = ()
        self._nvml: Nvml | None = None
        self._opened = threading.Event()
        self._stopped = threading.Event()
        self._opener = threading.Thread(target=self._open, name="nvml", daemon=True)

    def start(self) -> None:
        """Begin to open NVML; `wait` returns when there is something to read."""
        self._opener.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until every GPU was read once or NVML is known to be unavailable."""
        until = time.monotonic() + timeout_s
        return self._opened.wait(timeout_s) and all(
            sampler.wait(max(0.0, until - time.monotonic())) for sampler in self._samplers
        )

    @property
    def answered(self) -> bool:
        """Whether NVML was opened, or cannot be."""
        return self._opened.is_set()

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the threads; one that hangs in NVML is left behind, and dies with the process."""
        self._stopped.set()
        until = time.monotonic() + timeout_s
        if self._opener.ident is not None:
            self._opener.join(timeout_s)
        ended = [sampler.stop(max(0.0, until - time.monotonic())) for sampler in self._samplers]
        if self._nvml is not None and not self._opener.is_alive() and all(ended):
            self._nvml.close()

    def devices(self) -> Readings:
        """Return every GPU and MIG instance as it was read last, in NVML's order."""
        readings = [
            replace(reading, stale=True) if sampler.age_s > self._stale_after_s else reading
            for sampler in self._samplers
            for reading in sampler.value
        ]
        minors = {gpu.label: gpu.minor for gpu in self._gpus if gpu.minor is not None}
        usable = selected(self._environ, readings, minors)
        return tuple(
            reading if reading.uuid in usable else replace(reading, usable=False)
            for reading in (self._claimed(readings, self._claims) if self._claims else readings)
        )

    def _claimed(self, readings: list[DeviceReading], claims: Claims) -> list[DeviceReading]:
        """Return readings with who claims each GPU, and who waits for it."""
        seen, tickets = claims.seen(reading.uuid for reading in readings), claims.tickets()
        return [
            replace(reading, claim=seen.get(reading.uuid), waiting=waiting)
            if (waiting := waiting_for(reading.uuid, tickets)) or reading.uuid in seen
            else reading
            for reading in readings
        ]

    def cpus_near(self, uuid: str) -> frozenset[int]:
        """Return the CPUs to pin a worker on this device to; all usable ones if unknown."""
        for gpu, sampler in zip(self._gpus, self._samplers, strict=True):
            if any(reading.uuid == uuid for reading in sampler.value):
                return gpu.cpus
        return frozenset(os.sched_getaffinity(0))

    def warnings(self) -> tuple[str, ...]:
        """Return why GPUs are missing or misleading, with the hint."""
        if not self._opened.is_set():
            return ("NVML does not answer: does nvidia-smi work on this host?",)
        if not ambiguous_order(self._environ, self.devices()):
            return self._warnings
        return (
            *self._warnings,
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
            self._begin(nvml)
        self._opened.set()

    def _begin(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.driver_version = nvml.driver_version()
        self.cuda_version = nvml.cuda_version()
        gpus, warnings = nvml.gpus(self.processes.identify)
        self._gpus, self._warnings = tuple(gpus), tuple(warnings)
        self._samplers = tuple(
            Sampler(gpu.read, gpu.last, self._interval_s, f"gpu {gpu.label}") for gpu in gpus
        )
        for sampler in self._samplers:
            if not self._stopped.is_set():
                sampler.start()
