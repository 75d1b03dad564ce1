"""A stand-in for NVIDIA's pynvml where there is no GPU; tests put its folder on PYTHONPATH.

GPUTUI_FAKE_NVML is what the machine has, as JSON or as the path of a file with it, which may
change at any time:

    {"gpus": 8}                                   as many plain GPUs, or a list, one object each:
    {"gpus": [{"lost": true}, {"mig": [{}, null, {"memory_mib": 9856}]}],
     "open_error": "DriverNotLoaded", "driver": "580.95.05", "cuda": 13000}

A GPU's keys and their defaults are in `Gpu` and `Instance`; `hang` and `unsupported` list the
functions that never return or are not supported (`hang` at the top: of the whole library). Only
the functions that the agent may call once a second exist. Errors are raised as the real module
raises them.
"""

import json
import os
import string
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CODES = {
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "LIB_RM_VERSION_MISMATCH": 18,
    "UNKNOWN": 999,
}
MIB = 2**20
nvmlMemory_v2 = 0x02000028  # noqa: N816


class NVMLLibraryMismatchError(Exception):
    """The library is too old for this module."""


class NVMLError(Exception):
    """As in the real module: `NVMLError(15)` makes an `NVMLError_GpuIsLost`."""

    classes: dict[int, type["NVMLError"]] = {}  # noqa: RUF012
    value: int

    def __new__(cls, value: int | None = None) -> "NVMLError":
        error = Exception.__new__(cls if value is None else NVMLError.classes[value])
        if value is not None:
            error.value = value
        return error

    def __str__(self) -> str:
        return type(self).__name__.removeprefix("NVMLError_")


for name, code in CODES.items():
    class_name = "NVMLError_" + string.capwords(name, "_").replace("_", "")
    NVMLError.classes[code] = type(class_name, (NVMLError,), {"value": code})
    setattr(sys.modules[__name__], class_name, NVMLError.classes[code])


@dataclass
class Instance:
    uuid: str = ""
    name: str = "NVIDIA H200 MIG 1g.18gb"
    memory_mib: int = 16384
    used_mib: int = 12
    processes: list[dict[str, Any]] = field(default_factory=list)
    """Each `{"pid": …, "memory_mib": … or null}`."""
    unsupported: list[str] = field(default_factory=list)
    hang: list[str] = field(default_factory=list)
    lost: bool = False
    forbidden: bool = False
    """Whether a device cgroup keeps this process from opening it."""


@dataclass
class Gpu(Instance):
    name: str = "NVIDIA H200"
    memory_mib: int = 143771
    used_mib: int = 4
    reserved_mib: int = 600
    minor: int | None = None
    mig: list[dict[str, Any] | None] | None = None
    """None is MIG mode off; a None within is an index without an instance."""
    utilization: int = 0
    temperature: int = 33
    power_mw: int = 76_500
    power_limit_mw: int = 700_000
    energy_mj: int | None = None
    """What its counter shows; None: what it draws, since this process began to look."""
    sm_clock_mhz: int = 1980
    event_reasons: int = 1
    ecc_errors: int = 0
    xids: list[int] = field(default_factory=list)
    """Those that it has had; a longer list tells of another one."""
    nvlinks: int = 0
    """Of them that are up, of generation 4."""
    nvlink_kib: int = 0
    """That went over them each way, as the driver counts."""
    pcie: list[int] = field(default_factory=lambda: [5, 16])
    """Generation and width."""


@dataclass(frozen=True)
class Handle:
    """Points to a GPU, or to a MIG instance on it."""

    gpu: int
    instance: int | None = None


BEGAN = time.monotonic()
_opened = False
_read: tuple[object, dict[str, Any]] = (None, {})


def _machine() -> dict[str, Any]:
    """Return the configuration as it is now; the last one when its file went with its test."""
    global _read
    text = os.environ.get("GPUTUI_FAKE_NVML", '{"gpus": 8}')
    file = Path(text) if text.startswith("/") else None
    try:
        key = text if file is None else (file.stat().st_mtime_ns, file.stat().st_ino)
        if key != _read[0]:
            _read = (key, _expand(json.loads(text if file is None else file.read_text())))
    except FileNotFoundError:
        if _read[0] is None:
            raise
    return _read[1]


def _expand(machine: dict[str, Any]) -> dict[str, Any]:
    """Give every GPU and instance its defaults and its UUID."""
    gpus = machine.get("gpus", [])
    listed = [{} for _ in range(gpus)] if isinstance(gpus, int) else gpus
    machine["gpus"] = [
        Gpu(**{"uuid": f"GPU-{i:08x}-0000-0000-0000-000000000000", "minor": i} | gpu)
        for i, gpu in enumerate(listed)
    ]
    for i, gpu in enumerate(machine["gpus"]):
        if gpu.mig is not None:
            gpu.mig = [
                one if one is None else _instance(i, j, one) for j, one in enumerate(gpu.mig)
            ]
    return machine


def _instance(gpu: int, index: int, keys: dict[str, Any]) -> Instance:
    return Instance(**{"uuid": f"MIG-{gpu:04x}{index:04x}-0000-0000-0000-000000000000"} | keys)


def _enter(function: str, handle: Handle | None = None) -> Any:
    """Return what a call is about, after hanging or failing as configured."""
    if not _opened:
        raise NVMLError(CODES["UNINITIALIZED"])
    while True:
        machine = _machine()
        hanging = list(machine.get("hang", []))
        target = None if handle is None else _target(machine, handle)
        hanging += [] if target is None else target.hang
        if function not in hanging and "*" not in hanging:
            break
        time.sleep(0.005)
    if handle is not None:
        if target is None:
            raise NVMLError(CODES["INVALID_ARGUMENT"])
        if target.lost or machine["gpus"][handle.gpu].lost:
            raise NVMLError(CODES["GPU_IS_LOST"])
        if function in target.unsupported:
            raise NVMLError(CODES["NOT_SUPPORTED"])
    return machine if handle is None else target


def _target(machine: dict[str, Any], handle: Handle) -> Any:
    gpus = machine["gpus"]
    if handle.gpu >= len(gpus):
        return None
    gpu = gpus[handle.gpu]
    if handle.instance is None:
        return gpu
    return gpu.mig[handle.instance] if gpu.mig and handle.instance < len(gpu.mig) else None


def _whole(function: str, handle: Handle) -> Any:
    """As `_enter`, for what MIG instances do not support."""
    target = _enter(function, handle)
    if handle.instance is not None:
        raise NVMLError(CODES["NOT_SUPPORTED"])
    return target


def nvmlInit() -> None:  # noqa: N802
    global _opened
    error = _machine().get("open_error")
    if error:
        raise getattr(sys.modules[__name__], f"NVMLError_{error}")
    _opened = True
    _enter("nvmlInit")


def nvmlShutdown() -> None:  # noqa: N802
    global _opened
    _enter("nvmlShutdown")
    _opened = False


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return str(_enter("nvmlSystemGetDriverVersion").get("driver", "580.95.05"))


def nvmlSystemGetCudaDriverVersion_v2() -> int:  # noqa: N802
    return int(_enter("nvmlSystemGetCudaDriverVersion_v2").get("cuda", 13000))


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(_enter("nvmlDeviceGetCount")["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> Handle:  # noqa: N802
    if _enter("nvmlDeviceGetHandleByIndex", Handle(index)).forbidden:
        raise NVMLError(CODES["NO_PERMISSION"])
    return Handle(index)


def nvmlDeviceGetUUID(handle: Handle) -> str:  # noqa: N802
    return str(_enter("nvmlDeviceGetUUID", handle).uuid)


def nvmlDeviceGetName(handle: Handle) -> str:  # noqa: N802
    return str(_enter("nvmlDeviceGetName", handle).name)


def nvmlDeviceGetMinorNumber(handle: Handle) -> int:  # noqa: N802
    minor = _whole("nvmlDeviceGetMinorNumber", handle).minor
    return int(minor)


def nvmlDeviceGetPciInfo(handle: Handle) -> Any:  # noqa: N802
    _whole("nvmlDeviceGetPciInfo", handle)
    return SimpleNamespace(domain=0x7FFF, bus=handle.gpu, device=0)


def nvmlDeviceGetMemoryInfo(handle: Handle, version: int | None = None) -> Any:  # noqa: N802
    """Version 2 tells the driver's reserve apart; version 1 counts it as used."""
    target = _enter("nvmlDeviceGetMemoryInfo", handle)
    if version and "nvmlDeviceGetMemoryInfo_v2" in target.unsupported:
        raise NVMLError(CODES["FUNCTION_NOT_FOUND"])
    reserved = getattr(target, "reserved_mib", 0) * MIB
    total, used = target.memory_mib * MIB, target.used_mib * MIB
    free = total - reserved - used
    return SimpleNamespace(
        total=total, free=free, used=used if version else used + reserved, reserved=reserved
    )


def nvmlDeviceGetUtilizationRates(handle: Handle) -> Any:  # noqa: N802
    gpu = _whole("nvmlDeviceGetUtilizationRates", handle)
    if gpu.mig is not None:
        raise NVMLError(CODES["NOT_SUPPORTED"])
    return SimpleNamespace(gpu=gpu.utilization, memory=99)


def nvmlDeviceGetTemperature(handle: Handle, sensor: int) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetTemperature", handle).temperature)


def nvmlDeviceGetTemperatureV(handle: Handle, sensor: int) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetTemperatureV", handle).temperature)


def nvmlDeviceGetPowerUsage(handle: Handle) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetPowerUsage", handle).power_mw)


def nvmlDeviceGetTotalEnergyConsumption(handle: Handle) -> int:  # noqa: N802
    gpu = _whole("nvmlDeviceGetTotalEnergyConsumption", handle)
    drawn_mj = int(gpu.power_mw * (time.monotonic() - BEGAN))
    return drawn_mj if gpu.energy_mj is None else int(gpu.energy_mj)


def nvmlDeviceGetEnforcedPowerLimit(handle: Handle) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetEnforcedPowerLimit", handle).power_limit_mw)


def nvmlDeviceGetClockInfo(handle: Handle, clock: int) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetClockInfo", handle).sm_clock_mhz)


def nvmlDeviceGetCurrentClocksEventReasons(handle: Handle) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetCurrentClocksEventReasons", handle).event_reasons)


def nvmlEventSetCreate() -> dict[int, int]:  # noqa: N802
    """Return GPU → how many of its Xids were told."""
    _enter("nvmlEventSetCreate")
    return {}


def nvmlDeviceRegisterEvents(handle: Handle, kinds: int, events: dict[int, int]) -> None:  # noqa: N802
    assert kinds == 8
    events[handle.gpu] = len(_whole("nvmlDeviceRegisterEvents", handle).xids)


def nvmlEventSetWait_v2(events: dict[int, int], timeout_ms: int) -> Any:  # noqa: N802
    for index, gpu in enumerate(_enter("nvmlEventSetWait_v2")["gpus"]):
        if (told := events.get(index, 0)) < len(gpu.xids):
            events[index] = told + 1
            return SimpleNamespace(device=Handle(index), eventType=8, eventData=gpu.xids[told])
    raise NVMLError(CODES["TIMEOUT"])


def nvmlDeviceGetTotalEccErrors(handle: Handle, kind: int, counter: int) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetTotalEccErrors", handle).ecc_errors)


def nvmlDeviceGetNvLinkState(handle: Handle, link: int) -> int:  # noqa: N802
    links = _whole("nvmlDeviceGetNvLinkState", handle).nvlinks
    if not links:
        raise NVMLError(CODES["NOT_SUPPORTED"])
    return int(link < links)


def nvmlDeviceGetP2PStatus(handle: Handle, other: Handle, index: int) -> int:  # noqa: N802
    both = (_whole("nvmlDeviceGetP2PStatus", each) for each in (handle, other))
    return 0 if all(gpu.nvlinks for gpu in both) else 5


def nvmlDeviceGetMaxPcieLinkGeneration(handle: Handle) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetMaxPcieLinkGeneration", handle).pcie[0])


def nvmlDeviceGetMaxPcieLinkWidth(handle: Handle) -> int:  # noqa: N802
    return int(_whole("nvmlDeviceGetMaxPcieLinkWidth", handle).pcie[1])


def nvmlDeviceGetFieldValues(handle: Handle, fields: list[tuple[int, int]]) -> Any:  # noqa: N802
    gpu = _whole("nvmlDeviceGetFieldValues", handle)
    known = {164: 26562, 138: gpu.nvlink_kib, 139: gpu.nvlink_kib} if gpu.nvlinks else {}
    return [
        SimpleNamespace(
            nvmlReturn=0 if field in known else CODES["NOT_SUPPORTED"],
            value=SimpleNamespace(ullVal=known.get(field, 0)),
        )
        for field, _ in fields
    ]


def nvmlDeviceGetMigMode(handle: Handle) -> list[int]:  # noqa: N802
    on = int(_whole("nvmlDeviceGetMigMode", handle).mig is not None)
    return [on, on]


def nvmlDeviceGetMaxMigDeviceCount(handle: Handle) -> int:  # noqa: N802
    _whole("nvmlDeviceGetMaxMigDeviceCount", handle)
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Handle, index: int) -> Handle:  # noqa: N802
    gpu = _whole("nvmlDeviceGetMigDeviceHandleByIndex", handle)
    if index >= len(gpu.mig) or gpu.mig[index] is None:
        raise NVMLError(CODES["NOT_FOUND"])
    return Handle(handle.gpu, index)


def nvmlDeviceGetComputeRunningProcesses(handle: Handle) -> list[Any]:  # noqa: N802
    target = _enter("nvmlDeviceGetComputeRunningProcesses", handle)
    return _processes(target, "C")


def nvmlDeviceGetGraphicsRunningProcesses(handle: Handle) -> list[Any]:  # noqa: N802
    target = _enter("nvmlDeviceGetGraphicsRunningProcesses", handle)
    return _processes(target, "G")


def _processes(target: Any, kind: str) -> list[Any]:
    """Return the processes of a kind; one of nvidia-smi's type C+G is of both."""
    return [
        SimpleNamespace(pid=process["pid"], usedGpuMemory=_bytes(process.get("memory_mib")))
        for process in target.processes
        if kind in process.get("type", "C")
    ]


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB
