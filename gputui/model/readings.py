"""An agent's readings of its host and its GPUs: frozen values, once a second; which are free, and
whose the others are, in words.

A reading that is missing is `None`, never 0. A claim says who means to use a GPU; a process that
holds some of its memory implies one.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY
from enum import StrEnum

from gputui.model.bounds import (
    Bytes,
    BytesPerSecond,
    Celsius,
    CpuPercent,
    Few,
    Joules,
    Line,
    Load,
    Megahertz,
    Moment,
    Name,
    Number,
    Percent,
    Pid,
    Seconds,
    SmallNumber,
    Some,
    Watts,
)
from gputui.model.frozen import frozen
from gputui.model.plain_text import safe, span


class Owner(StrEnum):
    """The owner of a process on a GPU."""

    OURS = "ours"
    OTHER = "other"
    UNKNOWN = "unknown"


@frozen
class Note:
    """The note of a claim or ticket, as its holder wrote it; unchecked."""

    text: Line = ""
    since: Moment | None = None
    """In seconds since the epoch, as `until`."""
    until: Moment | None = None
    """The promised end; nothing ends a claim but its holder."""
    idle_since: Moment | None = None
    """Since when its holder has seen the GPU do nothing."""
    only_held: bool = False
    """Whether its process does nothing but hold it: to end that releases it."""
    person: Name = ""
    """Who it is, on an account that people share."""


@frozen
class Claim:
    """A claim on a GPU that is held now; its holder is what the kernel says."""

    pid: Pid | None
    """None, as `user`, where the holder cannot be seen: it is in another namespace of pids."""
    user: Name | None
    note: Note = Note()
    ours: bool = False
    """Whether the agent that reads it holds it."""
    own: bool = False
    """Whether its holder is of the user whose agent reads it."""


@frozen
class DeviceProcess:
    """A process that holds memory on a GPU."""

    pid: Pid
    owner: Owner
    user: Name | None
    command: Line | None
    memory_bytes: Bytes | None
    since: Moment | None = None
    """When it started, in seconds since the epoch."""


@frozen
class Interconnect:
    """A GPU's links to the others and to its host, and their bandwidth each way."""

    nvlinks: SmallNumber = 0
    """Of them that are up."""
    nvlink_bytes_per_s: BytesPerSecond | None = None
    """All of them together."""
    nvlink_peers: Few[Name] = ()
    """Labels of the GPUs that it reaches over them."""
    pcie_generation: SmallNumber | None = None
    pcie_width: SmallNumber | None = None
    pcie_bytes_per_s: BytesPerSecond | None = None


@frozen
class DeviceReading:
    """One GPU, or one MIG instance of it, as NVML last read it."""

    uuid: Name
    label: Name
    """`0` for the first GPU that NVML lets this user open, `0.2` for the instance 2 on it."""
    name: Name
    memory_total_bytes: Bytes | None = None
    memory_used_bytes: Bytes | None = None
    utilization_percent: Percent | None = None
    temperature_c: Celsius | None = None
    power_w: Watts | None = None
    power_limit_w: Watts | None = None
    idle_power_w: Watts | None = None
    """What it last took while it had been idle for some seconds; None before it ever was."""
    sm_clock_mhz: Megahertz | None = None
    throttle_reasons: Few[Name] = ()
    """Only those that matter: thermal, power brake, hardware slowdown; not idle."""
    ecc_errors: Number | None = None
    """Uncorrected volatile errors."""
    processes: Some[DeviceProcess] = ()
    interconnect: Interconnect | None = None
    nvlink_bytes_per_s: BytesPerSecond | None = None
    """Bytes a second sent and received over NVLink."""
    lost: bool = False
    """Whether it fell off the bus; the other readings are then the last good ones."""
    usable: bool = True
    """Whether this cluster may use it (the hosts file, CUDA_VISIBLE_DEVICES, Slurm, MIG parent)."""
    stale: bool = False
    """Whether NVML has not answered for some seconds; the readings are then the last good ones."""
    claim: Claim | None = None
    waiting: Few[Name] = ()
    """Users who wait for it, the first first."""
    energy_j: Joules | None = None
    """Since the driver was loaded; read every ten seconds."""
    ahead: SmallNumber = 0
    """How many of them come before the agent that reads it."""
    idle_since: Moment | None = None
    """Since when it has been seen to do nothing, by its agent or its claim's holder."""
    xid: SmallNumber = 0
    """The driver's number for what went wrong last; 0 where nothing has."""
    xid_at: Moment | None = None
    graphics_bytes: Bytes = 0
    """Memory that programs hold which do nothing but draw; they claim nothing."""

    @property
    def is_mig(self) -> bool:
        """Whether this is a MIG instance."""
        return "." in self.label

    @property
    def mig_profile(self) -> str:
        """`3g.40gb`, as its name ends; "" for a whole GPU.

        >>> DeviceReading("MIG-a", "0.1", "NVIDIA H100 80GB HBM3 MIG 3g.40gb").mig_profile
        '3g.40gb'
        """
        return self.name.rpartition(" MIG ")[2] if self.is_mig else ""

    @property
    def short_name(self) -> str:
        """`gpu0`, or `mig0.2`: the name of its first worker without the host's."""
        return f"{'mig' if self.is_mig else 'gpu'}{self.label}"


@frozen
class HostReading:
    """One host as its agent last read it."""

    cpu_percent: Percent | None = None
    """Of all CPUs that its cgroup allows: 0 to 100."""
    memory_used_bytes: Bytes | None = None
    memory_total_bytes: Bytes | None = None
    load_1m: Load | None = None
    network_receive_bytes_per_s: BytesPerSecond | None = None
    network_send_bytes_per_s: BytesPerSecond | None = None

    @property
    def network_bytes_per_s(self) -> float | None:
        """The rate at which it receives and sends."""
        received, sent = self.network_receive_bytes_per_s, self.network_send_bytes_per_s
        return None if received is None or sent is None else received + sent


@frozen
class ProcessReading:
    """A worker's process as its agent last read it."""

    _: KW_ONLY
    cpu_percent: CpuPercent | None = None
    """Of one CPU: 250 is two and a half CPUs."""
    rss_bytes: Bytes | None = None
    open_files: Number | None = None
    stopped: bool = False
    """Whether a signal has stopped it (SIGSTOP): the worker is silent from then on."""


XIDS = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    48: "double bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping",
    64: "ECC page retirement or row remapping failed",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
    121: "C2C link error",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    154: "GPU recovery action changed",
}
"""Source: NVIDIA's list of Xid errors, in its words."""
XID_SHOWN_S = 600.0


def xid_words(xid: int) -> str:
    """Return an Xid with what NVIDIA calls it.

    >>> xid_words(79), xid_words(7)
    ('79, GPU has fallen off the bus', '7')
    """
    return f"{xid}, {XIDS[xid]}" if xid in XIDS else str(xid)


def recent_xid(device: DeviceReading, now: float) -> str:
    """Return the Xid that a GPU has had lately; the driver does not say when it is over."""
    lately = device.xid_at is not None and now - device.xid_at < XID_SHOWN_S
    return xid_words(device.xid) if lately else ""


IDLE_PERCENT = 5.0
"""A GPU that is less busy does nothing."""
HANGING_PERCENT = 95.0
HANGING_SHARE = 0.1
"""Of the power between a card's idle and its limit; a kernel that spins takes 8 % at most of it."""


def seems_to_hang(device: DeviceReading) -> bool:
    """Return whether a GPU looks busy at the power of an idle one.

    Measured on an H100 that takes 119 W when idle and 700 W at most: a kernel that spins takes
    119 to 167 W, a matrix product 621 W.

    >>> gpu = DeviceReading("u", "0", "H100", utilization_percent=100, power_limit_w=700)
    >>> from dataclasses import replace
    >>> [seems_to_hang(replace(gpu, idle_power_w=119, power_w=watts)) for watts in (167, 621)]
    [True, False]
    """
    busy, power = device.utilization_percent, device.power_w
    idle, limit = device.idle_power_w, device.power_limit_w
    if busy is None or power is None or idle is None or limit is None or not device.usable:
        return False
    return busy >= HANGING_PERCENT and power < idle + HANGING_SHARE * (limit - idle)


UNREAD = HostReading()
"""A host that nothing is known of."""


IMPLIED_BYTES = 256 * 2**20
"""A process that holds more of a GPU's memory claims it, whatever it computes."""

NO_DRIVER = "no NVIDIA driver here (libnvidia-ml.so.1 was not found): install the driver"
UNSEEN_BYTES = 2 * 2**30
"""A GPU of whose memory processes that are not seen hold more is in use."""
IMPLIED_PERCENT = 10.0
"""A GPU that is busier than this is in use, though no process may be seen."""

DESKTOP = ("Xorg", "Xwayland", "gnome-shell", "kwin", "plasmashell", "sddm", "gdm", "cosmic-comp")
"""Programs of a desktop; they claim nothing."""


@frozen
class Wanted:
    """How many free GPUs somebody wants, which will do, and how long they wait for them."""

    count: SmallNumber = 0
    """0 is as many of each host as its line says: gpus=free:N."""
    per_host: SmallNumber = 0
    """So many of each host that gives any; 0 for any number, of as few hosts as possible."""
    memory_bytes: Bytes = 0
    """Memory that must be free on each."""
    wait_s: Seconds = 0.0
    whole: bool = False
    """Whether MIG instances will not do: they are for one process, to which CUDA gives one only."""


NOTHING_WANTED = Wanted()


@frozen
class Ticket:
    """Somebody who waits for some of `uuids`."""

    name: str
    holder: Claim
    uuids: tuple[str, ...]


def implies_claim(process: DeviceProcess) -> bool:
    """Return whether a process uses a GPU so that others should leave it alone.

    >>> [implies_claim(DeviceProcess(1, Owner.OTHER, "a", command, size)) for command, size in (
    ...     ("python train.py", 2**30), ("/usr/lib/xorg/Xorg vt2", 2**30), ("python", 2**20))]
    [True, False, False]
    """
    program = (process.command or "").split(" ", 1)[0].rpartition("/")[2]
    if program.startswith(DESKTOP):
        return False
    return process.memory_bytes is None or process.memory_bytes >= IMPLIED_BYTES


def unseen_bytes(device: DeviceReading) -> int:
    """Return how much memory processes hold that are not seen, such as those of a container.

    0 where it is little, or where what a process holds is not known.
    """
    held = [each.memory_bytes for each in device.processes]
    seen = device.graphics_bytes + sum(each or 0 for each in held)
    unseen = (device.memory_used_bytes or 0) - seen
    known = device.usable and None not in held  # a GPU in MIG mode says what its instances hold
    return unseen if known and unseen >= UNSEEN_BYTES else 0


def in_use(device: DeviceReading) -> bool:
    """Return whether a GPU is somebody's: by a claim, processes that imply one, or its work."""
    return bool(users(device)) or (device.utilization_percent or 0.0) >= IMPLIED_PERCENT


def is_free(device: DeviceReading) -> bool:
    """Return whether a GPU is nobody's, and may be used."""
    return device.usable and not (device.lost or device.stale or in_use(device))


def waiting_for(uuid: str, tickets: Iterable[Ticket]) -> tuple[str, ...]:
    """Return the users who wait for a GPU, the first first."""
    return tuple(each.holder.user or "unknown" for each in tickets if uuid in each.uuids)


def users(device: DeviceReading) -> tuple[str, ...]:
    """Return a GPU's users: the holder of its claim, then those of its processes."""
    claimed = [device.claim.user] if device.claim else []
    using = [process.user for process in device.processes if implies_claim(process)]
    using += [None] * (device.claim is None and unseen_bytes(device) > 0)
    return tuple(dict.fromkeys(user or "unknown" for user in (*claimed, *using)))


SHOWN = 8
"""How many GPUs of a queue are listed."""


def claim_text(device: DeviceReading, now: float) -> str:
    """Describe a GPU's claim: its holder, the note, the promised end, and who waits."""
    parts = []
    if device.claim:
        note = device.claim.note
        parts += [device.claim.user or "held, holder unknown"]
        parts += [f"({note.person}, unverified)"] * bool(note.person)
        parts += [note.text] * bool(note.text)
        parts += _promise(device, now)
    parts += [f"waiting: {', '.join(device.waiting)}"] * bool(device.waiting)
    return safe(" · ".join(parts))


def _promise(device: DeviceReading, now: float) -> list[str]:
    """Describe the promised end; once it is over, how long the GPU has done nothing, too."""
    assert device.claim
    if (until := device.claim.note.until) is None:
        return []
    if until > now:
        return [f"for {span(until - now, fine=True)} more"]
    idle = f", idle {span(now - device.idle_since)}" if device.idle_since is not None else ""
    return [f"over by {span(now - until)}{idle}"]


def used_since(device: DeviceReading, user: str | None = None) -> float | None:
    """Return since when a GPU has been claimed or used, by one user or anybody.

    None where that is not known.
    """
    claim = device.claim if device.claim and user in (None, device.claim.user) else None
    claimed = claim.note.since if claim else None
    using = (
        each.since for each in device.processes if implies_claim(each) and user in (None, each.user)
    )
    return min(filter(None, (claimed, *using)), default=None)


def queue_lines(devices: Iterable[tuple[str, DeviceReading]], now: float) -> list[str]:
    """Describe for one who waits, a line each, who has the GPUs."""
    lines = []
    for host, device in filter(lambda each: not is_free(each[1]), devices):
        since = used_since(device)
        what = " · ".join(
            [
                ", ".join(users(device)) or "in use",
                *([f"since {span(now - since)}"] if since is not None else []),
                *([device.claim.note.text] if device.claim and device.claim.note.text else []),
                *(_promise(device, now) if device.claim else []),
            ]
        )
        lines.append(safe(f"  {host} {device.short_name}: {what}"))
    if more := lines[SHOWN:]:
        lines[SHOWN:] = [f"  … and {len(more)} more"]
    return lines
