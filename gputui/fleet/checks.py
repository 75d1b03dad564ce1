"""Check a host's facts: pure functions, each returns a `Problem` with its hint, or None.

The state machine of a host takes the first; `doctor` shows all of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gputui.fleet.fleet_settings import FleetSettings, Versions, installed_here
from gputui.model.hosts import Host
from gputui.model.plan import HostCapacity, PlannedDevice
from gputui.model.readings import DeviceReading, Owner
from gputui.protocol.agent import (
    Facts,
    FromAgent,
    Telemetry,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import LogLines

PORT_HINT = (
    "let that port through this machine's firewall (DASK_GPUTUI__SCHEDULER__PORT fixes it), or "
    "set DASK_GPUTUI__SCHEDULER__HOST to an address that the hosts reach"
)
FAMILY_HINT = (
    "reach all hosts over one version of IP (AddressFamily in the SSH configuration), or set "
    "DASK_GPUTUI__SCHEDULER__HOST to an address that all of them reach"
)
RAPIDS = ("cudf-", "dask-cudf-", "cuml-", "raft-dask-", "dask-cuda")
"""How the names of packages begin that allow one version of Dask only."""

LABEL = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5})?")
"""An NVML index, with that of a MIG instance."""

CLOCK_HINT = "run an NTP client there and here"
CLOCK_SKEW_S = 10.0
"""With more, what happened on two hosts cannot be put in order; a slow connection adds some."""
CLOCK_REFUSED_S = 86400.0
"""With more, neither certificates nor logs of the host mean anything."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a host cannot be used, and the hint."""

    check: str
    """python, versions, gpus, cupy or clock."""
    reason: str
    hint: str = ""


def problems(host: Host, facts: Facts, settings: FleetSettings) -> Iterator[Problem]:
    """Yield what keeps the host from being used, most basic first."""
    checks = (
        python_problem(facts.python, facts.python_version, settings.versions),
        versions_problem(facts, settings.versions),
        gpus_problem(host, facts, settings),
    )
    yield from (problem for problem in checks if problem)


def warnings(host: Host, facts: Facts, settings: FleetSettings) -> tuple[str, ...]:
    """Return the warnings about a host that can be used.

    What its driver says does not matter where the hosts file wants no GPU of it.
    """
    found = list(facts.warnings) if host.gpus != () else []
    skipped = ", and left alone" if settings.busy == "skip" else ""
    busy = (device for device in chosen_devices(host, facts.devices) if used_by_others(device))
    found += [_occupied(device) + skipped for device in busy]
    if facts.clusters:
        names = ", ".join(facts.clusters)
        found.append(
            f"your cluster {names} runs here, too, and both take all that there is: "
            "give each a part with gpus=, workers= and memory="
        )
    here, there = installed_here().get("numpy", ""), dict(facts.packages).get("numpy", "")
    if there and here.split(".")[0] != there.split(".")[0]:
        found.append(f"numpy {there} there, {here} here: arrays may not travel between them")
    return tuple(found)


def clock_problem(ahead_s: float) -> Problem | None:
    """Return that a host's clock is more than a day off.

    >>> clock_problem(3600) is None, clock_problem(-2.5 * 86400).reason
    (True, 'its clock is 2.5 days behind ours')
    """
    if abs(ahead_s) <= CLOCK_REFUSED_S:
        return None
    return Problem("clock", f"its clock is {_offset(ahead_s)}", f"set it: {CLOCK_HINT}")


def clock_warning(ahead_s: float) -> str:
    """Return that a host's clock is off, "" where it is not.

    >>> clock_warning(3600), clock_warning(-5)
    ('its clock is 60 min ahead of ours: times of events will not agree', '')
    """
    if abs(ahead_s) <= CLOCK_SKEW_S:
        return ""
    return f"its clock is {_offset(ahead_s)}: times of events will not agree"


def _offset(ahead_s: float) -> str:
    units = (("days", 86400), ("min", 60), ("s", 1))
    unit, unit_s = next((each for each in units if abs(ahead_s) >= 2 * each[1]), units[-1])
    size = f"{abs(ahead_s) / unit_s:.1f}".removesuffix(".0")
    return f"{size} {unit} {'ahead of' if ahead_s > 0 else 'behind'} ours"


def python_problem(python: str, there: str, versions: Versions) -> Problem | None:
    """Check the version of a host's interpreter, such as `3.10.12`."""
    if there.split(".")[:2] == versions.python.split("."):
        return None
    return Problem(
        "python",
        f"Python {there} ({python}), but this cluster runs on {versions.python}: "
        "functions do not travel between minor versions",
        f"set python= to a Python {versions.python} there, or make one: gputui bootstrap HOSTS",
    )


def versions_problem(facts: Facts, versions: Versions) -> Problem | None:
    """Check that dask, distributed and NumPy are there, Dask's in the same version."""
    there = dict(facts.packages)
    needed = {"dask": versions.dask, "distributed": versions.distributed}
    wrong = [
        f"{name} {there[name]}, but {wanted} here" if there.get(name) else f"no {name}"
        for name, wanted in needed.items()
        if there.get(name) != wanted
    ]
    if not there.get("numpy"):
        wrong.append("no numpy")
    if not wrong:
        return None
    reason = f"{facts.python} has {', '.join(wrong)}"
    if (found := rapids(facts)) and all(there.get(name) for name in needed):
        pins = " ".join(f"{name}=={there[name]}" for name in needed)
        hint = f"RAPIDS there ({found}) needs that Dask, so take it here: pip install {pins}"
        return Problem("versions", reason, hint)
    pins = " ".join(f"{name}=={wanted}" for name, wanted in needed.items())
    hint = f"there: {facts.python} -m pip install {pins} numpy; or here: gputui bootstrap HOSTS"
    return Problem("versions", reason, hint)


def rapids(facts: Facts) -> str:
    """Return which of RAPIDS' packages a host has, those that allow one version of Dask only."""
    return ", ".join(
        f"{name} {version}" for name, version in facts.packages if name.startswith(RAPIDS)
    )


def gpus_problem(host: Host, facts: Facts, settings: FleetSettings) -> Problem | None:
    """Check that the host has the GPUs that the hosts file asks for."""
    if host.gpus == ():
        return None
    known = facts.devices
    missing = [gpu for gpu in host.gpus or () if not any(_is(device, gpu) for device in known)]
    if missing:
        have = ", ".join(device.label for device in known) or "none"
        why = "".join(f"; {warning}" for warning in facts.warnings)
        return Problem(
            "gpus",
            f"no GPU {', '.join(missing)}: it has {have}{why}",
            "correct gpus=, or write gpus=none for CPU workers",
        )
    if not facts.gpus_known:
        return Problem("gpus", "; ".join(facts.warnings), "try again, or write gpus=none")
    devices = chosen_devices(host, facts.devices)
    if not devices and not settings.cpu_fallback:
        return Problem("gpus", _no_gpu(facts), f"for CPU workers write: {host.name} gpus=none")
    busy = [device for device in devices if used_by_others(device)]
    if busy and (settings.busy == "refuse" or (settings.busy == "skip" and busy == list(devices))):
        return Problem("gpus", "; ".join(map(_occupied, busy)), "wait, or start with --busy warn")
    return None


def cupy_missing(host: Host, facts: Facts) -> Problem | None:
    """Return that CuPy is missing where there are GPUs to use: only what needs it says so."""
    has_cupy = any(name.startswith("cupy") for name, _ in facts.packages)
    if has_cupy or not chosen_devices(host, facts.devices):
        return None
    major = "12" if facts.cuda_driver.startswith("12.") else "13"
    return Problem(
        "cupy",
        f"GPUs, but no CuPy in {facts.python}: torch and JAX work without it, most presets do not",
        f"there: {facts.python} -m pip install 'cupy-cuda{major}x[ctk]'; "
        "or here: gputui bootstrap HOSTS",
    )


def chosen_devices(host: Host, devices: Iterable[DeviceReading]) -> tuple[DeviceReading, ...]:
    """Return the devices that the hosts file and the host's environment leave to this cluster."""
    return tuple(
        device
        for device in devices
        if device.usable and (host.gpus is None or any(_is(device, gpu) for gpu in host.gpus))
    )


def _is(device: DeviceReading, gpu: str) -> bool:
    """Return whether a word of gpus= means this device, or the GPU that it is a part of."""
    whole = device.label == gpu or device.label.startswith(f"{gpu}.")
    return whole or (gpu.startswith(("GPU-", "MIG-")) and device.uuid.startswith(gpu))


def _no_gpu(facts: Facts) -> str:
    """Return why no GPU can be used."""
    if facts.devices and facts.cuda_visible_devices is not None:
        return (
            f"none of its {len(facts.devices)} GPUs may be used: "
            f"CUDA_VISIBLE_DEVICES={facts.cuda_visible_devices!r} there"
        )
    if facts.devices:
        return f"none of its {len(facts.devices)} GPUs may be used"
    return "; ".join(("no GPU", *facts.warnings))


def used_by_others(device: DeviceReading) -> bool:
    """Return whether others claim or use a device that this cluster does not use already."""
    owners = {process.owner for process in device.processes}
    if device.claim is not None:
        return not device.claim.ours
    return Owner.OTHER in owners and Owner.OURS not in owners


def _occupied(device: DeviceReading) -> str:
    """Describe who claims a GPU, or uses it."""
    if device.claim is not None:
        note = f": {device.claim.note.text}" if device.claim.note.text else ""
        return f"GPU {device.label} is claimed by {device.claim.user or 'an unknown user'}{note}"
    users = ", ".join(
        f"{process.command or 'a process'} of {process.user or 'unknown user'} (pid {process.pid})"
        for process in device.processes
        if process.owner is Owner.OTHER
    )
    return f"GPU {device.label} is used by {users}"


def capacity(host: Host, facts: Facts, settings: FleetSettings) -> HostCapacity:
    """Return the host's capacity: the chosen devices, and with `busy: skip` only free ones."""
    return HostCapacity(
        devices=tuple(
            PlannedDevice(device.uuid, device.label)
            for device in chosen_devices(host, facts.devices)
            if settings.busy != "skip" or not used_by_others(device)
        ),
        cpus=facts.cpus,
        memory_bytes=facts.memory_total_bytes,
    )


def same_machine(host: Host, facts: Facts, owners: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the host that has a GPU of this one, and a message; None where none has."""
    for device in chosen_devices(host, facts.devices):
        owner = owners.get(device.uuid, host.name)
        if owner != host.name:
            gpu = f"GPU {device.label} ({device.uuid})"
            return owner, f"it is the same machine as {owner}: both have {gpu}"
    return None


def overreach(host: str, message: FromAgent, facts: Facts | None, owners: Mapping[str, str]) -> str:
    """Return why a message is refused, such as for another host's worker; "" if it is not."""
    names: Iterable[str] = ()
    devices: tuple[DeviceReading, ...] = ()
    match message:
        case Telemetry(devices=devices, workers=workers):
            names = [worker.name for worker in workers]
            others = [each for each in devices if owners.get(each.uuid, host) != host]
            own = {device.uuid for device in facts.devices} if facts and others else set()
            for device in others:
                if device.uuid not in own:
                    return f"its agent reports {device.uuid}, a GPU of {owners[device.uuid]}"
        case WorkerStarted(name=name) | WorkerReady(name=name) | WorkerExited(name=name):
            names = (name,)
        case LogLines(worker=name):
            names = (name,)
        case Facts(running=running, devices=devices):
            names = (worker.name for worker in running)
    labels = {device.label for device in devices}
    if min(len({device.uuid for device in devices}), len(labels)) < len(devices):
        return "its agent reports one GPU twice"
    for label in labels:  # a worker's name has it, and what is kept of a host goes by that
        if not LABEL.fullmatch(label):
            return f"its agent reports a GPU with the label {label[:80]!r}"
    for name in names:
        if name.rpartition(":")[0] != host:
            return f"its agent reports {name!r}, which is no worker of this host"
    return ""
