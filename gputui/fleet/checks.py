"""Check a host's facts: pure functions that return a `Finding`, with a hint unless it is good.

A host fails with the first bad one and shows the warnings; `doctor` shows them all.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum

from gputui.fleet.stages import FleetSettings, Versions, installed_here
from gputui.model.frozen import frozen
from gputui.model.hosts import Host
from gputui.model.plain_text import cut, many
from gputui.model.plan import HostCapacity, usual_workers
from gputui.model.readings import (
    NO_DRIVER,
    DeviceReading,
    Owner,
    implies_claim,
    in_use,
    unseen_bytes,
)
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
RAPIDS = ("cudf-", "dask-cudf-", "cuml-", "raft-dask-", "dask-cuda")
"""How the names of packages begin that allow one version of Dask only."""

DISK_NEEDED_BYTES = 5 * 2**30
"""With less, a host whose workers spill is soon full."""

OTHERS_HIDDEN = "others' processes are hidden there (hidepid): their users are unknown"

LABEL = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5})?")
"""An NVML index, with that of a MIG instance."""

CLOCK_SKEW_S = 10.0
"""With more, what happened on two hosts cannot be put in order; a slow connection adds some."""
CLOCK_REFUSED_S = 86400.0
"""With more, neither certificates nor logs of the host mean anything."""


class Verdict(StrEnum):
    """The outcome of a check."""

    GOOD = "✓"
    DOUBTFUL = "!"
    BAD = "✗"


@frozen
class Finding:
    """One check on one host."""

    host: str
    check: str
    """resolve, connect, login, python, versions, gpus, mig, cupy, warning, disk, limits,
    clock, ports, port, workers, tunnel or sessions."""
    verdict: Verdict
    text: str = ""
    hint: str = ""


def examine(host: Host, facts: Facts, settings: FleetSettings) -> Iterator[Finding]:
    """Yield the findings from a host's facts, the most basic first."""
    basic = (
        python(host, facts.python, facts.python_version, settings.versions),
        versions(host, facts, settings.versions),
        gpus(host, facts, settings),
    )
    room = disk(host, facts)
    yield from basic
    yield from ports(host, facts, settings)
    if chosen := chosen_devices(host, facts.devices):
        if instances := [device for device in chosen if device.is_mig]:
            yield mig(host, instances)
        yield cupy(host, facts)
    for warning in warnings(host, facts, settings):
        if not any(warning in each.text for each in (*basic, room)):
            yield Finding(host.name, "warning", Verdict.DOUBTFUL, warning)
    yield room
    for text, hint in facts.limits:
        yield Finding(host.name, "limits", Verdict.DOUBTFUL, text, hint)


def warnings(
    host: Host, facts: Facts, settings: FleetSettings, *, workers: bool = True
) -> Iterator[str]:
    """Yield the warnings about a host that can be used, without `workers` those of its GPUs only.

    The latter do not matter where the hosts file wants no GPU of it, nor does a driver that is not
    there where CPUs will do.
    """
    if host.gpus != ():
        yield from (
            each for each in facts.warnings if each != NO_DRIVER or not settings.cpu_fallback
        )
        yield from [OTHERS_HIDDEN] * facts.others_hidden
    if not workers:
        return
    if (room := disk(host, facts)).verdict is Verdict.DOUBTFUL:
        yield room.text
    skipped = ", and left alone" if settings.busy == "skip" else ""
    busy = filter(used_by_others, chosen_devices(host, facts.devices))
    for device in () if takes_free(host, settings) else busy:
        yield _occupied(device) + skipped
    here, there = installed_here().get("numpy", ""), dict(facts.packages).get("numpy", "")
    if there and here.split(".")[0] != there.split(".")[0]:
        yield f"numpy {there} there, {here} here: arrays may not travel between them"


def clock(host: Host, ahead_s: float) -> Finding:
    """Check a host's clock against this machine's.

    >>> clock(Host("a"), -2.5 * 86400).text
    'its clock is 2 days, 12:00:00 behind ours'
    >>> clock(Host("a"), 3600).text, clock(Host("a"), -5).text
    ('its clock is 1:00:00 ahead of ours: times of events will not agree', 'within 10 s of ours')
    """
    size_s = abs(ahead_s)
    if size_s <= CLOCK_SKEW_S:
        return Finding(host.name, "clock", Verdict.GOOD, f"within {CLOCK_SKEW_S:.0f} s of ours")
    way = "ahead of" if ahead_s > 0 else "behind"
    text = f"its clock is {timedelta(seconds=round(size_s))} {way} ours"
    hint = "run an NTP client there and here"
    if size_s > CLOCK_REFUSED_S:
        return Finding(host.name, "clock", Verdict.BAD, text, f"set it: {hint}")
    text += ": times of events will not agree"
    return Finding(host.name, "clock", Verdict.DOUBTFUL, text, hint)


def python(host: Host, path: str, there: str, here: Versions) -> Finding:
    """Check the version of a host's interpreter, such as `3.10.12`."""
    if there.split(".")[:2] == here.python.split("."):
        return Finding(host.name, "python", Verdict.GOOD, f"{there} ({path})")
    return Finding(
        host.name,
        "python",
        Verdict.BAD,
        f"Python {there} ({path}), but {here.python} here: neither the agent nor functions travel "
        "between minor versions",
        f"set python= to a Python {here.python} there, or make one: gputui bootstrap HOSTS",
    )


def versions(host: Host, facts: Facts, here: Versions) -> Finding:
    """Check that dask, distributed and NumPy are there, Dask's in the same version."""
    there = dict(facts.packages)
    needed = {"dask": here.dask, "distributed": here.distributed}
    wrong = [
        f"{name} {there[name]}, but {wanted} here" if there.get(name) else f"no {name}"
        for name, wanted in needed.items()
        if there.get(name) != wanted
    ]
    if not there.get("numpy"):
        wrong.append("no numpy")
    if not wrong:
        text = ", ".join(f"{name} {there[name]}" for name in (*needed, "numpy"))
        return Finding(host.name, "versions", Verdict.GOOD, text)
    reason = f"{facts.python} has {', '.join(wrong)}"
    if (found := rapids(facts)) and all(there.get(name) for name in needed):
        pins = " ".join(f"{name}=={there[name]}" for name in needed)
        hint = f"RAPIDS there ({found}) needs that Dask, so take it here: pip install {pins}"
    else:
        pins = " ".join(f"{name}=={wanted}" for name, wanted in needed.items())
        install = f"{facts.python} -m pip install {pins} numpy"
        hint = f"there: {install}; or here: gputui bootstrap HOSTS"
    return Finding(host.name, "versions", Verdict.BAD, reason, hint)


def rapids(facts: Facts) -> str:
    """Return which of RAPIDS' packages a host has, those that allow one version of Dask only."""
    return ", ".join(
        f"{name} {version}" for name, version in facts.packages if name.startswith(RAPIDS)
    )


def gpus(host: Host, facts: Facts, settings: FleetSettings) -> Finding:
    """Check that the host has the GPUs that the hosts file asks for."""

    def bad(reason: str, hint: str) -> Finding:
        return Finding(host.name, "gpus", Verdict.BAD, reason, hint)

    known, devices = facts.devices, chosen_devices(host, facts.devices)
    missing = [gpu for gpu in host.gpus or () if not any(_is(each, gpu, known) for each in known)]
    if missing:
        labels = (f"{each.label} {each.mig_profile}".strip() for each in known)
        have = "; ".join((", ".join(labels) or "none", *facts.warnings))
        reason = f"no GPU {', '.join(missing)}: it has {have}"
        return bad(reason, "correct gpus=, or write gpus=none for CPU workers")
    if host.gpus != () and not facts.gpus_known:
        return bad("; ".join(facts.warnings), "try again, or write gpus=none")
    if host.gpus != () and not devices and not settings.cpu_fallback:
        return bad(_no_gpu(facts), f"for CPU workers write: {host.name} gpus=none")
    busy = () if takes_free(host, settings) else tuple(filter(used_by_others, devices))
    if busy and (settings.busy == "refuse" or (settings.busy == "skip" and busy == devices)):
        return bad("; ".join(map(_occupied, busy)), "wait, or start with --busy warn")
    if not settings.wanted.count and host.free_gpus > len(devices):
        return bad(f"gpus=free:{host.free_gpus}, but it has {len(devices)}", "write fewer, or none")
    text = "none wanted" if host.gpus == () else "none: CPU workers"
    if devices:
        text = (
            f"{host.free_gpus or len(devices)} to use: "
            f"{', '.join(sorted({each.name for each in devices}))}"
        )
    return Finding(host.name, "gpus", Verdict.GOOD, text)


def ports(host: Host, facts: Facts, settings: FleetSettings) -> Iterator[Finding]:
    """Yield that the hosts file names too few: each worker needs one, and those who try it one."""
    workers = usual_workers(host, capacity(host, facts, settings))
    if host.ports and workers > host.ports[1] - host.ports[0]:
        named = f"worker-ports={host.ports[0]}-{host.ports[1]}"
        text = f"{named} has too few ports for its {many(workers, 'worker')}"
        hint = f"name {workers + 1}, one for checks, or fewer workers (workers=, workers-per-gpu=)"
        yield Finding(host.name, "ports", Verdict.BAD, text, hint)


def mig(host: Host, instances: Iterable[DeviceReading]) -> Finding:
    """Say which MIG instances are used, and what MIG rules out."""
    named = ", ".join(f"{each.label} {each.mig_profile}" for each in instances)
    without = "no CUDA IPC, NVLink or NCCL between instances, so arrays go through host memory"
    return Finding(host.name, "mig", Verdict.GOOD, f"{named}: {without}")


def cupy(host: Host, facts: Facts) -> Finding:
    """Check that CuPy is there: a host without it is used, except by what needs it."""
    found = [f"{name} {version}" for name, version in facts.packages if name.startswith("cupy")]
    if found:
        return Finding(host.name, "cupy", Verdict.GOOD, ", ".join(found))
    major = "12" if facts.cuda_driver.startswith("12.") else "13"
    return Finding(
        host.name,
        "cupy",
        Verdict.DOUBTFUL,
        f"GPUs, but no CuPy in {facts.python}: torch and JAX work without it, most presets do not",
        f"there: {facts.python} -m pip install 'cupy-cuda{major}x[ctk]'; "
        "or here: gputui bootstrap HOSTS",
    )


def disk(host: Host, facts: Facts) -> Finding:
    """Check that there is room for spilling."""
    free = f"{facts.disk_free_bytes / 2**30:.0f} GiB free for spilling"
    if facts.disk_free_bytes >= DISK_NEEDED_BYTES:
        return Finding(host.name, "disk", Verdict.GOOD, free)
    hint = "free some, or point TMPDIR at a larger disk with env.TMPDIR="
    return Finding(host.name, "disk", Verdict.DOUBTFUL, f"only {free}", hint)


def chosen_devices(
    host: Host, devices: Iterable[DeviceReading], *, of_others: bool = False
) -> tuple[DeviceReading, ...]:
    """Return the devices that the hosts file and the host's environment leave to this cluster.

    With `of_others`, also those that the environment hides, marked as usable. A GPU in MIG mode has
    no utilisation, and is left out.
    """
    known = tuple(devices)
    return tuple(
        device if device.usable else replace(device, usable=True)
        for device in known
        if (device.usable or (of_others and device.utilization_percent is not None))
        and (host.gpus is None or any(_is(device, gpu, known) for gpu in host.gpus))
    )


def takes_free(host: Host, settings: FleetSettings) -> bool:
    """Return whether a cluster takes those of a host's GPUs only that it found free."""
    return host.gpus != () and bool(settings.wanted.count or host.free_gpus)


def _is(device: DeviceReading, gpu: str, devices: Iterable[DeviceReading]) -> bool:
    """Return whether a word of gpus= means this one of the devices, or the GPU it is a part of."""
    if gpu.startswith("mig"):
        return device.is_mig and gpu in ("mig", f"mig:{device.mig_profile}")
    labels = (device.label, device.label.partition(".")[0])
    if gpu.startswith(("GPU-", "MIG-")):
        return any(each.uuid.startswith(gpu) for each in devices if each.label in labels)
    return gpu in labels


def _no_gpu(facts: Facts) -> str:
    """Return why no GPU can be used."""
    if not facts.devices:
        return "; ".join(("no GPU", *facts.warnings))
    visible = facts.cuda_visible_devices
    why = "" if visible is None else f": CUDA_VISIBLE_DEVICES={cut(visible, 99)!r} there"
    return "; ".join((f"none of its {len(facts.devices)} GPUs may be used{why}", *facts.warnings))


def used_by_others(device: DeviceReading) -> bool:
    """Return whether a device is in use, and not by this cluster."""
    if device.claim is not None:
        return not device.claim.ours
    return in_use(device) and all(each.owner is not Owner.OURS for each in device.processes)


def _occupied(device: DeviceReading) -> str:
    """Describe who claims a GPU, or uses it."""
    if device.claim is not None:
        note = f": {device.claim.note.text}" if device.claim.note.text else ""
        return f"GPU {device.label} is claimed by {device.claim.user or 'an unknown user'}{note}"
    users = ", ".join(
        f"{process.command or 'a process'} of {process.user or 'unknown user'} (pid {process.pid})"
        for process in filter(implies_claim, device.processes)
    )
    if users:
        return f"GPU {device.label} is used by {users}"
    if unseen := unseen_bytes(device):
        held = f"{unseen / 2**30:.0f} GiB of GPU {device.label}"
        return f"{held} are held by processes that are not seen here"
    return f"GPU {device.label} is {device.utilization_percent or 0:.0f} % busy"


def capacity(host: Host, facts: Facts, settings: FleetSettings) -> HostCapacity:
    """Return the host's capacity: the chosen devices, and with `busy: skip` only free ones."""
    return HostCapacity(
        devices=tuple(
            device
            for device in chosen_devices(host, facts.devices)
            if settings.busy != "skip" or not used_by_others(device)
        ),
        cpus=facts.cpus,
        memory_bytes=facts.memory_total_bytes,
    )


def same_machine(host: Host, facts: Facts, owners: Mapping[str, str]) -> str:
    """Return which other host has a GPU of this one; "" where none has."""
    for device in chosen_devices(host, facts.devices):
        owner = owners.get(device.uuid, host.name)
        if owner != host.name:
            gpu = f"GPU {device.label} ({device.uuid})"
            return f"it is the same machine as {owner}: both have {gpu}"
    return ""


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
        case (
            WorkerStarted(name=name)
            | WorkerReady(name=name)
            | WorkerExited(name=name)
            | LogLines(worker=name)
        ):
            names = (name,)
        case Facts(running=running, devices=devices):
            names = (worker.name for worker in running)
    labels = {device.label for device in devices}
    if min(len({device.uuid for device in devices}), len(labels)) < len(devices):
        return "its agent reports one GPU twice"
    for label in labels:  # workers' names have it, and histories are kept by it
        if not LABEL.fullmatch(label):
            return f"its agent reports a GPU with the label {label[:80]!r}"
    for name in names:
        if name.rpartition(":")[0] != host:
            return f"its agent reports {name!r}, which is no worker of this host"
    return ""
