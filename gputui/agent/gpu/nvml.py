"""The GPUs of this host as NVML knows them; the only module that imports pynvml.

`Nvml.open` opens the library or says why it cannot; a `Gpu` reads one GPU and its MIG instances
as `DeviceReading`s. A reading that the card does not support is None, a GPU that fell off the
bus keeps its last readings and is `lost`. Any call may hang: `watch.py` makes them in threads.
Source: NVML API, nvmlDeviceGetFieldValues and nvmlDeviceGetP2PStatus for the links.
"""

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gputui.agent.gpu.processes import unseen
from gputui.errors import DevicesError
from gputui.model.readings import NO_DRIVER, DeviceProcess, DeviceReading, Interconnect

HINTS = {
    "NVMLError_LibraryNotFound": NO_DRIVER,
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is installed but not loaded: "
    "run `sudo modprobe nvidia`, or reboot the host",
    "NVMLError_LibRmVersionMismatch": "the NVIDIA driver was updated while it was loaded, and "
    "its library no longer fits: reboot the host, or reload the nvidia kernel modules",
    "NVMLError_NoPermission": "this user may not open the NVIDIA driver: look at the permissions "
    "of /dev/nvidiactl and /dev/nvidia*, and at the user's groups",
}
"""pynvml's exception on opening → what is wrong and how to fix it."""

LOST = frozenset({"NVMLError_GpuIsLost", "NVMLError_ResetRequired", "NVMLError_GpuNotFound"})

THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of nvmlClocksEventReasons that cost speed unasked; idling and the power cap do not."""

PCI = Path("/sys/bus/pci/devices")
"""Has the CPUs near a card in `local_cpus`; NVML takes 10 ms of every start to say the same.

Source: PCI/sysfs-pci in the kernel's documentation.
"""

IDLE_READINGS = 5
"""After so many in a row without work, its power is that of an idle card."""
COMPUTE_MODES = {
    2: "compute mode prohibited: no program can use it",
    3: "compute mode exclusive process: one process at a time can use it, without MPS",
}
"""NVML_COMPUTEMODE_… → what it rules out."""

SLOW_EVERY = 10
"""MIG mode, power cap, ECC counts, energy and NVLink traffic are read every so many readings."""
NVLINK_SPEED_MBPS = 164
NVLINK_SENT_KIB, NVLINK_RECEIVED_KIB = 138, 139
"""NVML_FI_DEV_…; the counters are of all links where the scope is `ALL_LINKS`."""
ALL_LINKS = 0xFFFFFFFF
MOST_NVLINKS = 18
P2P_OVER_NVLINK = 2
LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""PCIe generation → bytes per second of a lane, after encoding."""

XID_EVENT = 8
"""nvmlEventTypeXidCriticalError."""
Identify = Callable[[int], DeviceProcess]


class DeviceLostError(DevicesError):
    """NVML says that the GPU is gone until it is reset."""


class Nvml:
    """An open NVML, shared by all threads (NVML locks for itself)."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self._failures = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError)

    @classmethod
    def open(cls) -> "Nvml":
        """Load pynvml and NVML; raise DevicesError, with the hint, where they are not."""
        try:
            pynvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise DevicesError(
                "the module pynvml is missing: install NVIDIA's nvidia-ml-py"
            ) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            hint = HINTS.get(type(error).__name__)
            raise DevicesError(
                hint or f"NVML cannot be opened ({error}): does nvidia-smi work on this host?"
            ) from error
        return cls(pynvml)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call an NVML function; return None if it fails or this NVML does not have it.

        Raises DeviceLostError when the answer is that the GPU is gone.
        """
        call = getattr(self.pynvml, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._failures as error:
            if type(error).__name__ in LOST:
                raise DeviceLostError(str(error)) from error
            return None

    def cuda_version(self) -> str:
        """Return the newest CUDA that the driver runs, `13.0`."""
        version = self.ask("nvmlSystemGetCudaDriverVersion_v2")
        return f"{version // 1000}.{version % 1000 // 10}" if version else ""

    def gpus(self, identify: Identify) -> tuple[list["Gpu"], list[str]]:
        """Return the GPUs in NVML's order, and a warning for each that cannot be used at all.

        GPUs that a device cgroup, as of a Slurm job, hides from this user are left out, and the
        others counted without them, as CUDA and nvidia-smi count there.
        """
        found, warnings, hidden = [], [], 0
        for index in range(self.ask("nvmlDeviceGetCount") or 0):
            try:
                found.append(Gpu(self, index, index - hidden, identify))
            except self.pynvml.NVMLError_NoPermission:
                hidden += 1
            except (*self._failures, DevicesError) as error:
                warnings.append(
                    f"GPU {index} cannot be used ({error}): reset it with "
                    f"`sudo nvidia-smi --gpu-reset -i {index}`, or reboot the host"
                )
        for gpu in found:
            gpu.connect([other for other in found if other is not gpu])
        return found, warnings


class Xids:
    """The last Xid of each GPU: the driver's reports of what went wrong. Belongs to one thread."""

    def __init__(self, nvml: Nvml, gpus: "Iterable[Gpu]") -> None:
        self._ask = nvml.ask
        self._events = nvml.ask("nvmlEventSetCreate")
        self._last: dict[str, tuple[int, float]] = {}
        for gpu in gpus if self._events is not None else ():
            with contextlib.suppress(DeviceLostError):
                nvml.ask("nvmlDeviceRegisterEvents", gpu.handle, XID_EVENT, self._events)

    def read(self) -> dict[str, tuple[int, float]]:
        """Return UUID → Xid and when it was read."""
        with contextlib.suppress(DeviceLostError):
            while self._events is not None:
                event = self._ask("nvmlEventSetWait_v2", self._events, 0)
                if event is None or not event.eventType & XID_EVENT:
                    break
                uuid = self._ask("nvmlDeviceGetUUID", event.device)
                self._last = {**self._last, uuid: (event.eventData, time.time())}
        return self._last


class Gpu:
    """One GPU: what does not change, and `read` for what does. Belongs to one thread at a time."""

    def __init__(self, nvml: Nvml, index: int, number: int, identify: Identify) -> None:
        """Find NVML's GPU of this index, which is labelled by another number."""
        self._nvml = nvml
        self._ask = nvml.ask
        self.handle = handle = nvml.pynvml.nvmlDeviceGetHandleByIndex(index)
        self._identify = identify
        self._readings_taken = 0
        self._idle_readings = 0
        """In a row."""
        self._nvlink_last: tuple[float, int] | None = None
        """When NVLink's counters were read last, and their sum in KiB."""
        self._instances: list[tuple[Any, DeviceReading]] = []
        """Handle and description of each MIG instance."""
        self.minor: int | None = nvml.ask("nvmlDeviceGetMinorNumber", handle)
        """N of its /dev/nvidiaN."""
        self.cpus = self._cpus()
        uuid = nvml.ask("nvmlDeviceGetUUID", handle)
        if uuid is None:
            raise DevicesError("NVML does not report its UUID")
        self.warning = ""
        """Why programs may be unable to use it, and the hint; "" if nothing rules them out."""
        self._slow = self._describe(handle, uuid, str(number))
        """The GPU with those readings that hardly ever change or are slow to ask."""
        self.label = self._slow.label
        """Its index among the GPUs that this user can open, as text."""
        self.last: tuple[DeviceReading, ...] = (self._slow,)
        """The last answer of `read`."""

    def connect(self, others: "list[Gpu]") -> None:
        """Find out what connects it to the other GPUs; once, before it is read."""
        with contextlib.suppress(DeviceLostError):
            self._slow = replace(self._slow, interconnect=self._interconnect(others))
            self.last = (self._slow,)

    def read(self) -> tuple[DeviceReading, ...]:
        """Return the GPU as it is now, and after it its MIG instances.

        An instance that was destroyed is lost, as a worker may be on it, until another one has its
        index or the GPU leaves MIG mode.
        """
        try:
            if self._readings_taken % SLOW_EVERY == 0:
                self._read_slow()
            self._readings_taken += 1
            read = [self._read_memory(*instance) for instance in self._instances]
            instances = [each for each in read if each.memory_total_bytes is not None]
            if len(instances) < len(read):  # destroyed: look next time which ones there are
                self._readings_taken = 0
            self.last = (self._read_gpu(), *instances, *self._destroyed(instances))
        except DeviceLostError:
            self._readings_taken = 0
            self.last = tuple(replace(reading, lost=True) for reading in self.last)
        return self.last

    def _destroyed(self, instances: list[DeviceReading]) -> Iterator[DeviceReading]:
        """Yield the last readings of instances that are not among these any more."""
        there = {each.label for each in instances}
        for before in self.last[1:] if not self._slow.usable else ():
            if before.label not in there:
                yield replace(before, lost=True)

    def _describe(self, handle: Any, uuid: str, label: str) -> DeviceReading:
        """Return a device without any measurement."""
        name = self._ask("nvmlDeviceGetName", handle) or "NVIDIA GPU"
        total, _ = self._memory(handle)
        return DeviceReading(uuid=uuid, label=label, name=name, memory_total_bytes=total)

    def _read_gpu(self) -> DeviceReading:
        ask, handle = self._ask, self.handle
        utilization = ask("nvmlDeviceGetUtilizationRates", handle)
        bits = ask("nvmlDeviceGetCurrentClocksEventReasons", handle) or 0
        power_w = _watts(ask("nvmlDeviceGetPowerUsage", handle))
        self._idle_readings = self._idle_readings + 1 if utilization and not utilization.gpu else 0
        if self._idle_readings >= IDLE_READINGS:  # its power falls some seconds after its work
            self._slow = replace(self._slow, idle_power_w=power_w)
        return replace(
            self._read_memory(handle, self._slow),
            utilization_percent=None if utilization is None else utilization.gpu,
            temperature_c=ask("nvmlDeviceGetTemperature", handle, 0),
            power_w=power_w,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, 1),
            throttle_reasons=tuple(why for bit, why in THROTTLE_REASONS.items() if bits & bit),
        )

    def _read_memory(self, handle: Any, device: DeviceReading) -> DeviceReading:
        """Return a device with its memory and, unless it is split, its processes."""
        total, used = self._memory(handle)
        running = device.usable and self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        computing = {each.pid for each in running or ()}
        drawing = self._ask("nvmlDeviceGetGraphicsRunningProcesses", handle) or ()
        return replace(
            device,
            memory_total_bytes=total,
            memory_used_bytes=used,
            graphics_bytes=sum(e.usedGpuMemory or 0 for e in drawing if e.pid not in computing),
            processes=tuple(
                replace(self._identify(each.pid), memory_bytes=each.usedGpuMemory)
                for each in running or ()
            ),
        )

    def _read_slow(self) -> None:
        ask, handle = self._ask, self.handle
        mode = ask("nvmlDeviceGetMigMode", handle)
        mig_enabled = mode is not None and mode[0] == 1
        energy_mj = ask("nvmlDeviceGetTotalEnergyConsumption", handle)  # takes 3 ms on an H100
        self._slow = replace(
            self._slow,
            power_limit_w=_watts(ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            ecc_errors=ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
            nvlink_bytes_per_s=self._nvlink_bytes_per_s(),
            energy_j=None if energy_mj is None else energy_mj / 1000,
            usable=not mig_enabled,
        )
        self._instances = []
        for index in range(
            ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0 if mig_enabled else 0
        ):
            instance = ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            uuid = None if instance is None else ask("nvmlDeviceGetUUID", instance)
            if uuid is not None:
                described = self._describe(instance, uuid, f"{self.label}.{index}")
                self._instances.append((instance, described))
        self.warning = self._restriction(mig_enabled=mig_enabled)

    def _restriction(self, *, mig_enabled: bool) -> str:
        if mig_enabled:
            where = f"GPU {self.label} is in MIG mode and has no instances"
            hint = f"make some with `sudo nvidia-smi mig -i {self.label} -cgi PROFILE -C`"
            return "" if self._instances else f"{where}: {hint}"
        mode = COMPUTE_MODES.get(self._ask("nvmlDeviceGetComputeMode", self.handle))
        hint = f"`sudo nvidia-smi -i {self.label} -c DEFAULT` lets programs share it"
        return f"GPU {self.label} is in {mode}; {hint}" if mode else ""

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return total and used bytes, without the driver's own reserve.

        The first version of the call counts the reserve (600 MB on an H200) as used.
        """
        info = self._ask("nvmlDeviceGetMemoryInfo", handle, self._nvml.pynvml.nvmlMemory_v2)
        if info is None:
            info = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return (None, None) if info is None else (int(info.total), int(info.used))

    def _cpus(self) -> frozenset[int]:
        """Return the CPUs near the GPU that this process may use, or all that it may use."""
        allowed = frozenset(os.sched_getaffinity(0))
        if pci := self._ask("nvmlDeviceGetPciInfo", self.handle):
            folder = PCI / f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
            with contextlib.suppress(OSError, ValueError):  # a container may have no /sys
                near = int((folder / "local_cpus").read_text().replace(",", ""), 16)
                return frozenset(cpu for cpu in allowed if near >> cpu & 1) or allowed
        return allowed

    def _interconnect(self, others: "list[Gpu]") -> Interconnect:
        """Read its NVLinks and PCIe lanes."""
        ask, handle = self._ask, self.handle
        states = [ask("nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_NVLINKS)]
        links = [link for link, state in enumerate(states) if state]
        each_mbps = self._fields((NVLINK_SPEED_MBPS, 0)) if links else None
        generation = ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
        width = ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
        lane = LANE_BYTES_PER_S.get(generation)
        return Interconnect(
            nvlinks=len(links),
            nvlink_bytes_per_s=None if each_mbps is None else len(links) * each_mbps * 1e6,
            nvlink_peers=tuple(
                other.label
                for other in others
                if ask("nvmlDeviceGetP2PStatus", handle, other.handle, P2P_OVER_NVLINK) == 0
            ),
            pcie_generation=generation,
            pcie_width=width,
            pcie_bytes_per_s=lane * width if lane and width else None,
        )

    def _nvlink_bytes_per_s(self) -> float | None:
        """Return the NVLinks' traffic since the last call, both ways together; None at first.

        On an H200 reading these counters takes 1.4 ms.
        """
        if not (self._slow.interconnect and self._slow.interconnect.nvlinks):
            return None
        kib = self._fields((NVLINK_SENT_KIB, ALL_LINKS), (NVLINK_RECEIVED_KIB, ALL_LINKS))
        if kib is None:
            return None
        before = self._nvlink_last
        self._nvlink_last = now = (time.monotonic(), kib)
        if before is None or now[0] <= before[0] or now[1] < before[1]:
            return None
        return (now[1] - before[1]) * 1024 / (now[0] - before[0])

    def _fields(self, *fields: tuple[int, int]) -> int | None:
        """Return the sum of the fields' values; None where this GPU lacks one."""
        values = self._ask("nvmlDeviceGetFieldValues", self.handle, [*fields])
        if not values or any(each.nvmlReturn for each in values):
            return None
        return sum(int(each.value.ullVal) for each in values)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def between(here: str | None, there: str | None) -> tuple[str, float | None]:
    """Name the link between two GPUs of this host, by UUID, and its bytes per second each way."""
    if here == there:
        return "device memory", None
    try:
        nvml = Nvml.open()
    except DevicesError:
        return "GPU to GPU", None
    gpus, _ = nvml.gpus(unseen)
    nvml.ask("nvmlShutdown")
    known = {gpu.last[0].uuid: gpu.last[0] for gpu in gpus}
    one, other = known.get(here or ""), known.get(there or "")
    if one is None or other is None or one.interconnect is None:
        return "GPU to GPU", None
    if other.label in one.interconnect.nvlink_peers:
        return "NVLink", one.interconnect.nvlink_bytes_per_s
    return "PCIe", one.interconnect.pcie_bytes_per_s
