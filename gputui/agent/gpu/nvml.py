"""The GPUs of this host as NVML knows them; the only module that imports pynvml.

`Nvml.open` opens the library or says why it cannot; a `Gpu` reads one GPU and its MIG instances
as `DeviceReading`s. A reading that the card does not support is None, a GPU that fell off the
bus keeps its last readings and is `lost`. Any call may hang: `watch.py` makes them in threads.
"""

import contextlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gputui.agent.gpu.interconnect import NvlinkMeter, interconnect
from gputui.agent.gpu.processes import UNSEEN, Identity
from gputui.errors import DevicesError
from gputui.model.readings import DeviceProcess, DeviceReading

REMEDIES = {
    "NVMLError_LibraryNotFound": "no NVIDIA driver here (libnvidia-ml.so.1 was not found): "
    "install the driver",
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

CPU_WORDS = 64
"""Affinity masks are read for this many times 64 CPUs."""

SLOW_EVERY = 10
"""MIG mode, power cap, ECC counts and NVLink traffic are read every so many readings."""


class DeviceLostError(DevicesError):
    """NVML says that the GPU is gone until it is reset."""


@dataclass(frozen=True, slots=True)
class SlowReadings:
    """Readings that hardly ever change or are slow to ask, and the handles of MIG instances."""

    power_limit_w: float | None = None
    ecc_errors: int | None = None
    mig_enabled: bool = False
    nvlink_bytes_per_s: float | None = None
    instances: tuple[tuple[Any, DeviceReading], ...] = ()


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
            hint = REMEDIES.get(type(error).__name__)
            raise DevicesError(
                hint or f"NVML cannot be opened ({error}): does nvidia-smi work on this host?"
            ) from error
        return cls(pynvml)

    def close(self) -> None:
        """Close the library."""
        self.ask("nvmlShutdown")

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

    def driver_version(self) -> str:
        """Return the driver's version, `580.159.04`."""
        return self.ask("nvmlSystemGetDriverVersion") or ""

    def cuda_version(self) -> str:
        """Return the newest CUDA that the driver runs, `13.0`."""
        version = self.ask("nvmlSystemGetCudaDriverVersion_v2")
        return f"{version // 1000}.{version % 1000 // 10}" if version else ""

    def gpus(self, identify: Callable[[int], Identity]) -> tuple[list["Gpu"], list[str]]:
        """Return the GPUs in NVML's order, and a warning for each that cannot be used at all.

        One that this user may not open, as a device cgroup has it, is not there for us.
        """
        found, warnings = [], []
        for index in range(self.ask("nvmlDeviceGetCount") or 0):
            try:
                handle = self.pynvml.nvmlDeviceGetHandleByIndex(index)
                found.append(Gpu(self, index, handle, identify))
            except self.pynvml.NVMLError_NoPermission:
                continue
            except (*self._failures, DevicesError) as error:
                warnings.append(
                    f"GPU {index} cannot be used ({error}): reset it with "
                    f"`sudo nvidia-smi --gpu-reset -i {index}`, or reboot the host"
                )
        for gpu in found:
            gpu.connect([other for other in found if other is not gpu])
        return found, warnings


class Gpu:
    """One GPU: what does not change, and `read` for what does. Belongs to one thread at a time."""

    def __init__(
        self, nvml: Nvml, index: int, handle: Any, identify: Callable[[int], Identity]
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._identify = identify
        self._readings_taken = 0
        self._slow = SlowReadings()
        self.minor: int | None = nvml.ask("nvmlDeviceGetMinorNumber", handle)
        """N of its /dev/nvidiaN."""
        self.cpus = self._cpus()
        uuid = nvml.ask("nvmlDeviceGetUUID", handle)
        if uuid is None:
            raise DevicesError("NVML does not report its UUID")
        self._blank = self._describe(handle, uuid, str(index))
        self.label = self._blank.label
        """NVML's index, as text."""
        self.last: tuple[DeviceReading, ...] = (self._blank,)
        """The last answer of `read`."""
        self._nvlink: NvlinkMeter | None = None

    def connect(self, others: "list[Gpu]") -> None:
        """Find out what connects it to the other GPUs; once, before it is read."""
        with contextlib.suppress(DeviceLostError):
            handles = [(other.label, other._handle) for other in others]
            found = interconnect(self._nvml.ask, self._handle, handles)
            self._blank = replace(self._blank, interconnect=found)
            self.last = (self._blank,)
            self._nvlink = NvlinkMeter(self._nvml.ask, self._handle) if found.nvlinks else None

    def read(self) -> tuple[DeviceReading, ...]:
        """Return the GPU as it is now, and after it its MIG instances."""
        try:
            if self._readings_taken % SLOW_EVERY == 0:
                self._slow = self._read_slow()
            self._readings_taken += 1
            self.last = (
                self._read_gpu(),
                *(self._read_instance(*instance) for instance in self._slow.instances),
            )
        except DeviceLostError:
            self._readings_taken = 0
            self.last = tuple(replace(reading, lost=True) for reading in self.last)
        return self.last

    def _describe(self, handle: Any, uuid: str, label: str) -> DeviceReading:
        """Return a device without any measurement."""
        name = self._nvml.ask("nvmlDeviceGetName", handle) or "NVIDIA GPU"
        total, _ = self._memory(handle)
        return DeviceReading(uuid=uuid, label=label, name=name, memory_total_bytes=total)

    def _read_gpu(self) -> DeviceReading:
        ask, handle, slow = self._nvml.ask, self._handle, self._slow
        total, used = self._memory(handle)
        utilization = ask("nvmlDeviceGetUtilizationRates", handle)
        return replace(
            self._blank,
            memory_total_bytes=total,
            memory_used_bytes=used,
            utilization_percent=None if utilization is None else utilization.gpu,
            temperature_c=self._temperature(),
            power_w=_watts(ask("nvmlDeviceGetPowerUsage", handle)),
            power_limit_w=slow.power_limit_w,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", handle, 1),
            throttle_reasons=self._throttle_reasons(),
            ecc_errors=slow.ecc_errors,
            processes=() if slow.mig_enabled else self._processes(handle),
            nvlink_bytes_per_s=slow.nvlink_bytes_per_s,
            usable=not slow.mig_enabled,
        )

    def _read_instance(self, handle: Any, blank: DeviceReading) -> DeviceReading:
        total, used = self._memory(handle)
        return replace(
            blank,
            memory_total_bytes=total,
            memory_used_bytes=used,
            processes=self._processes(handle),
        )

    def _read_slow(self) -> SlowReadings:
        ask, handle = self._nvml.ask, self._handle
        mode = ask("nvmlDeviceGetMigMode", handle)
        mig_enabled = mode is not None and mode[0] == 1
        return SlowReadings(
            power_limit_w=_watts(ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            ecc_errors=ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
            mig_enabled=mig_enabled,
            nvlink_bytes_per_s=self._nvlink.bytes_per_s() if self._nvlink else None,
            instances=self._instances() if mig_enabled else (),
        )

    def _instances(self) -> tuple[tuple[Any, DeviceReading], ...]:
        """Return each MIG instance's handle and description; empty places are passed over."""
        ask, found = self._nvml.ask, []
        for index in range(ask("nvmlDeviceGetMaxMigDeviceCount", self._handle) or 0):
            handle = ask("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index)
            uuid = None if handle is None else ask("nvmlDeviceGetUUID", handle)
            if uuid is not None:
                found.append((handle, self._describe(handle, uuid, f"{self.label}.{index}")))
        return tuple(found)

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return total and used bytes, without the driver's own reserve.

        The first version of the call counts the reserve (600 MB on an H200) as used.
        """
        pynvml = self._nvml.pynvml
        info = self._nvml.ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        if info is None:
            info = self._nvml.ask("nvmlDeviceGetMemoryInfo", handle)
        return (None, None) if info is None else (int(info.total), int(info.used))

    def _temperature(self) -> int | None:
        """Return degrees Celsius; by the older call where the driver has only that."""
        degrees: int | None = self._nvml.ask("nvmlDeviceGetTemperatureV", self._handle, 0)
        if degrees is None:
            degrees = self._nvml.ask("nvmlDeviceGetTemperature", self._handle, 0)
        return degrees

    def _throttle_reasons(self) -> tuple[str, ...]:
        bits = self._nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", self._handle) or 0
        return tuple(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit)

    def _processes(self, handle: Any) -> tuple[DeviceProcess, ...]:
        running = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        return tuple(self._process(process.pid, process.usedGpuMemory) for process in running)

    def _process(self, pid: int, memory_bytes: int | None) -> DeviceProcess:
        who = self._identify(pid)
        return DeviceProcess(pid, who.owner, who.user, who.command, memory_bytes, who.since)

    def _cpus(self) -> frozenset[int]:
        """Return the CPUs near the GPU that this process may use, or all that it may use."""
        allowed = frozenset(os.sched_getaffinity(0))
        words = self._nvml.ask("nvmlDeviceGetCpuAffinity", self._handle, CPU_WORDS) or ()
        return (
            frozenset(
                64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1
            )
            & allowed
        ) or allowed


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
    gpus, _ = nvml.gpus(lambda pid: UNSEEN)
    nvml.close()
    known = {gpu.last[0].uuid: gpu.last[0] for gpu in gpus}
    one, other = known.get(here or ""), known.get(there or "")
    if one is None or other is None or one.interconnect is None:
        return "GPU to GPU", None
    if other.label in one.interconnect.nvlink_peers:
        return "NVLink", one.interconnect.nvlink_bytes_per_s
    return "PCIe", one.interconnect.pcie_bytes_per_s
