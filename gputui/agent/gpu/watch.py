"""The GPUs of this host, read all the time: one thread opens NVML, then one reads each GPU.

Facts and telemetry take what was read last and never wait for NVML; a GPU that has not answered
for `STALE_AFTER_S` is marked so. The environment decides which devices are usable: NVML ignores
CUDA_VISIBLE_DEVICES and Slurm's variables and lists every GPU; the people who set them mean them.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

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

SLURM_VARIABLES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
GIVEN = ("CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", *SLURM_VARIABLES)

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
        self.sampled_at = time.monotonic()
        """When it was taken, by the monotonic clock."""
        self._sample = sample
        self._interval_s = interval_s
        self._ended = ended
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.value = self._sample()
            self.sampled_at = time.monotonic()
            self.sampled.set()
            self._ended.wait(self._interval_s)


class DeviceWatch:
    """Reads every GPU each `interval_s` seconds from `start` on, until `stopped` is set.

    `environ` is the environment whose CUDA_VISIBLE_DEVICES and Slurm allocation count.
    """

    def __init__(
        self,
        cluster_id: str,
        *,
        environ: Mapping[str, str],
        interval_s: float = 1.0,
        stale_after_s: float = STALE_AFTER_S,
    ) -> None:
        self.cuda_version = ""
        self.processes = Processes(cluster_id)
        self.claims: Claims | None = None
        """Where devices find who claims them; None for nowhere."""
        self.idle_since: dict[str, float] = {}
        """GPU → since when it has done nothing, of those that do nothing."""
        self.opened = threading.Event()
        """Set when NVML was opened, or cannot be."""
        self.stopped = threading.Event()
        """Ends the threads when it is set; one that hangs in NVML ends with the process."""
        self._environ = environ
        self._interval_s = interval_s
        self._stale_after_s = max(stale_after_s, 3 * interval_s)
        self._begun = False
        self._gpus: tuple[tuple[Gpu, Sampler[Readings]], ...] = ()
        self._xids: Sampler[dict[str, tuple[int, float]]] | None = None
        self._warnings: tuple[str, ...] = ()

    def start(self) -> None:
        """Begin to open NVML, once; `wait` returns when there is something to read.

        Raises RuntimeError where no thread can be started.
        """
        if not self._begun:
            threading.Thread(target=self._open, name="nvml", daemon=True).start()
            self._begun = True

    def wait(self, timeout_s: float) -> bool:
        """Wait until every GPU was read once or NVML is known to be unavailable."""
        until = time.monotonic() + timeout_s
        return self.opened.wait(timeout_s) and all(
            sampler.sampled.wait(max(0.0, until - time.monotonic())) for _, sampler in self._gpus
        )

    def devices(self) -> Readings:
        """Return every GPU and MIG instance as it was read last, in NVML's order."""
        stale_before = time.monotonic() - self._stale_after_s
        readings = [
            replace(reading, stale=True) if sampler.sampled_at < stale_before else reading
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
            for reading in (self._claimed(readings, self.claims) if self.claims else readings)
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
            self.idle_since.pop(reading.uuid, None)
            return None
        own = self.idle_since.setdefault(reading.uuid, now)
        noted = reading.claim.note.idle_since if reading.claim else None
        # One reading does not say for how long.
        return min((each for each in (own, noted) if each is not None and each < now), default=None)

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
        warnings = (*self._warnings, *(gpu.warning for gpu, _ in self._gpus if gpu.warning))
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
            every, ended = self._interval_s, self.stopped
            self._gpus = tuple(
                (gpu, Sampler(gpu.read, gpu.last, every, f"gpu {gpu.label}", ended)) for gpu in gpus
            )
            self._xids = Sampler(Xids(nvml, gpus).read, {}, every, "xids", ended)
        self.opened.set()


def selected(
    environ: Mapping[str, str], devices: Sequence[DeviceReading], minors: Mapping[str, int]
) -> frozenset[str]:
    """Return the UUIDs of the devices that the environment selects; all where it says nothing.

    `minors` maps a GPU's label to N of its /dev/nvidiaN, which is what Slurm counts by; a GPU
    without is taken by its index. A GPU that is selected is so with its MIG instances.

    >>> gpus = [DeviceReading("GPU-a", "0", "A100"), DeviceReading("GPU-b", "1", "A100")]
    >>> sorted(selected({}, gpus, {}))
    ['GPU-a', 'GPU-b']
    >>> sorted(selected({"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "0"}, gpus, {}))
    ['GPU-b']
    >>> sorted(selected({"SLURM_JOB_GPUS": "0"}, gpus, {"0": 1, "1": 0}))
    ['GPU-b']
    >>> selected({"SLURMD_NODENAME": "a1"}, gpus, {})
    frozenset()
    """
    if of_a_job_without_gpus(environ):
        return frozenset()
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        return visible(value, devices)
    numbers = next(filter(None, (_numbers(environ.get(name, "")) for name in SLURM_VARIABLES)), ())
    gpus = [device for device in devices if not device.is_mig]
    if numbers:
        # Slurm's numbers are those of the device files whatever a device cgroup hides. Source:
        # sbatch(1), SLURM_JOB_GPUS: "global GPU IDs".
        gpus = [each for each in gpus if minors.get(each.label, int(each.label)) in numbers]
    return frozenset(uuid for gpu in gpus for uuid in _with_instances(gpu, devices))


def visible(value: str, devices: Sequence[DeviceReading]) -> frozenset[str]:
    """Return the UUIDs of the devices that a value of CUDA_VISIBLE_DEVICES shows.

    Indices count the GPUs that this process may open, in NVML's order, which is that of
    CUDA_DEVICE_ORDER=PCI_BUS_ID. The first entry that names no device hides itself and all after
    it.
    Source: CUDA C++ Programming Guide, "CUDA Environment Variables".

    >>> gpus = [DeviceReading("GPU-a1", "0", "H200"), DeviceReading("GPU-a2", "1", "H200"),
    ...         DeviceReading("MIG-b1", "1.0", "H200 MIG 1g"), DeviceReading("GPU-c", "2", "H200")]
    >>> sorted(visible("2, 0", gpus))
    ['GPU-a1', 'GPU-c']
    >>> sorted(visible("GPU-c,MIG-b", gpus))
    ['GPU-c', 'MIG-b1']
    >>> sorted(visible("1", gpus))
    ['GPU-a2', 'MIG-b1']
    >>> sorted(visible("0,-1,2", gpus)), sorted(visible("2,GPU-a", gpus))
    (['GPU-a1'], ['GPU-c'])
    >>> visible("", gpus) == visible("-1", gpus) == visible("NoDevFiles", gpus) == frozenset()
    True
    """
    shown: set[str] = set()
    for entry in value.split(","):
        device = _named(entry.strip(), devices)
        if device is None:
            break
        shown.update(_with_instances(device, devices))
    return frozenset(shown)


def of_a_job_without_gpus(environ: Mapping[str, str]) -> bool:
    """Return whether Slurm started this and gave it no GPU, which it says by setting nothing.

    Source: `gres_common_gpu_set_env` in Slurm 22.05 to 26.05.
    """
    return "SLURMD_NODENAME" in environ and not any(name in environ for name in GIVEN)


def ambiguous_order(environ: Mapping[str, str], devices: Sequence[DeviceReading]) -> bool:
    """Return whether CUDA may count the GPUs otherwise than NVML, and an index is used.

    Without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA puts the fastest GPU first.

    >>> gpus = [DeviceReading("GPU-a", "0", "T4"), DeviceReading("GPU-b", "1", "A100")]
    >>> ambiguous_order({"CUDA_VISIBLE_DEVICES": "0"}, gpus)
    True
    >>> ambiguous_order({"CUDA_VISIBLE_DEVICES": "GPU-a"}, gpus)
    False
    >>> order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    >>> ambiguous_order({"CUDA_VISIBLE_DEVICES": "0"} | order, gpus)
    False
    """
    models = {device.name for device in devices if not device.is_mig}
    entries = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return (
        len(models) > 1
        and any(entry.strip().isdecimal() for entry in entries)
        and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    )


def _named(entry: str, devices: Sequence[DeviceReading]) -> DeviceReading | None:
    """Return the one device that an index or the start of a UUID names."""
    if entry.isdecimal():
        gpus = [device for device in devices if not device.is_mig]
        return next(iter(gpus[int(entry) :]), None)
    found = [device for device in devices if device.uuid.startswith(entry)]
    return found[0] if entry.startswith(("GPU-", "MIG-")) and len(found) == 1 else None


def _with_instances(device: DeviceReading, devices: Sequence[DeviceReading]) -> list[str]:
    """Return the UUIDs of a device and of the MIG instances on it."""
    on_it = f"{device.label}."
    return [device.uuid, *(other.uuid for other in devices if other.label.startswith(on_it))]


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list with ranges; nothing where it is no such list.

    >>> _numbers("0,4-6"), _numbers("gpu:2"), _numbers("")
    ((0, 4, 5, 6), (), ())
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return ()
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)
