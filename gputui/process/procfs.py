"""Read /proc and /sys: this machine and its processes, parsed once, here.

The parsers take text and return values; the functions below them read the files. A process
that is gone, or that this user may not see, is None. What frontends call works on a Mac, too.
"""

import contextlib
import fcntl
import ipaddress
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gputui.model.frozen import frozen
from gputui.process import IS_LINUX

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
IPV4_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv6 socket's far end begins with that is an IPv4 address. Source: RFC 4291, 2.5.5.2."""


@frozen
class CpuTimes:
    """Ticks of all CPUs together since boot."""

    busy: int
    total: int


@frozen
class MemoryUse:
    """Memory of the machine, or of a cgroup, in bytes."""

    total_bytes: int
    used_bytes: int


@frozen
class ProcessStat:
    """One process at one moment; `pid` and `start_ticks` together are used only once."""

    command: str
    parent: int
    cpu_ticks: int
    start_ticks: int
    rss_bytes: int
    state: str
    """One letter: R runs, S sleeps, D waits for a device or a disk, T a signal has stopped it."""

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it (SIGSTOP); a debugger that holds it does not count."""
        return self.state == "T"


@frozen
class Place:
    """The machine and pid namespace of a pid: processes of one place may judge each other's."""

    machine: str
    """Its name, for people."""
    boot: str
    pids: str
    """The namespace of pids, of this machine or of a container on it."""


def parse_cpu_times(stat: str) -> CpuTimes:
    """Return the first line of /proc/stat as ticks; waiting for I/O counts as idle.

    Source: proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice,
    where user and nice include the guests.

    >>> parse_cpu_times("cpu  100 0 50 800 50 0 0 0 0 0")
    CpuTimes(busy=150, total=1000)
    """
    ticks = [int(field) for field in stat.split("\n", 1)[0].split()[1:9]]
    total = sum(ticks)
    return CpuTimes(busy=total - ticks[3] - ticks[4], total=total)


def parse_meminfo(meminfo: str) -> MemoryUse:
    """Return /proc/meminfo as total and used, which is all that is not available.

    >>> parse_meminfo("MemTotal: 1000 kB\\nMemFree: 100 kB\\nMemAvailable: 400 kB\\n")
    MemoryUse(total_bytes=1024000, used_bytes=614400)
    """
    kib = {}
    for line in meminfo.split("\n", 3)[:3]:
        name, _, value = line.partition(":")
        kib[name] = int(value.split()[0])
    total = kib["MemTotal"]
    return MemoryUse(total * 1024, (total - kib.get("MemAvailable", kib["MemFree"])) * 1024)


def parse_net_dev(net_dev: str) -> dict[str, tuple[int, int]]:
    """Return each interface of /proc/net/dev with the bytes it received and sent.

    >>> parse_net_dev("Inter-| Receive\\n face |bytes\\n  eth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0")
    {'eth0': (10, 20)}
    """
    counters = {}
    for line in net_dev.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        counters[name.strip()] = (int(fields[0]), int(fields[8]))
    return counters


def parse_process_stat(stat: str) -> ProcessStat:
    """Return the fields of /proc/PID/stat; the command may hold spaces and parentheses.

    Source: proc_pid_stat(5).

    >>> fields = "S 7 1 1 0 -1 0 0 0 0 0 30 12 0 0 20 0 1 0 5555 0 2"
    >>> parse_process_stat(f"42 (a (b) c) {fields} 0").command
    'a (b) c'
    >>> parse_process_stat(f"42 (sh) {fields} 0").cpu_ticks
    42
    """
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    return ProcessStat(
        command=head.partition("(")[2],
        parent=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        state=fields[0],
    )


def number_after(name: str, text: str) -> int | None:
    """Return the number that a line of a kernel file has after a name; None without that line.

    >>> number_after("oom_kill", "pgfault 12\\noom_kill 3"), number_after("Pss:", "Pss:   7 kB")
    (3, 7)
    """
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value.split()[0])
    return None


def boot_time() -> float:
    """Return when this machine was started, in seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def cpu_times() -> CpuTimes:
    """Return the ticks of all CPUs since boot."""
    return parse_cpu_times(read_text("/proc/stat"))


def memory() -> MemoryUse:
    """Return the machine's memory now; its total may grow while it runs."""
    return parse_meminfo(read_text("/proc/meminfo"))


def network_counters() -> dict[str, tuple[int, int]]:
    """Return each interface with the bytes it received and sent since it came up."""
    return parse_net_dev(read_text("/proc/net/dev"))


def has_hardware(interface: str) -> bool:
    """Return whether a network interface is a device, not a bridge, a bond or a tunnel."""
    return Path("/sys/class/net", interface, "device").exists()


def process_stat(pid: int) -> ProcessStat | None:
    """Read a process's state from /proc; return None if it is not visible."""
    try:
        return parse_process_stat(read_text(f"/proc/{pid}/stat"))
    except (OSError, ValueError, IndexError):
        return None


def with_descendants(pid: int) -> list[int]:
    """Return a process and all below it, where the kernel tells a process's children."""
    found = [pid]
    for each in found:
        try:
            threads = os.listdir(f"/proc/{each}/task")  # noqa: PTH208 - names only
            for thread in threads:
                children = read_text(f"/proc/{each}/task/{thread}/children")
                found += map(int, children.split())
        except OSError:  # it has ended
            continue
    return found


def proportional_bytes(pid: int) -> int:
    """Return a process's memory and its part of what it shares; 0 where that is not said.

    The kernel walks all its pages for that.
    """
    try:
        return (number_after("Pss:", read_text(f"/proc/{pid}/smaps_rollup")) or 0) * 1024
    except OSError:
        return 0


def parse_pressure(pressure: str) -> float | None:
    """Return for how many percent of the last 10 s all processes waited; None where it is not said.

    Source: the kernel's documentation of /proc/pressure (PSI).

    >>> parse_pressure("some avg10=9.00 avg60=1.00\\nfull avg10=2.50 avg60=0.10 total=7")
    2.5
    """
    for line in pressure.splitlines():
        kind, *fields = line.split()
        if kind == "full":
            return float(dict(field.split("=") for field in fields)["avg10"])
    return None


def memory_pressure() -> float | None:
    """Return the pressure on memory as `parse_pressure` does; None where there is no PSI."""
    try:
        return parse_pressure(read_text("/proc/pressure/memory"))
    except (OSError, ValueError, KeyError):
        return None


def parse_unanswered(connections: str) -> list[str]:
    """Return the far ends in /proc/net/tcp or tcp6 to which the kernel has sent the same thrice.

    Source: proc_net_tcp(5): state 01 is established, 02 asks for a connection; then the queues, a
    timer, and how often it has sent again.

    >>> parse_unanswered("sl ...\\n0: 0100000A:9C40 0700000A:2252 02 00:00 01:63 00000003 0 0")
    ['10.0.0.7:8786']
    >>> far = "0000000000000000FFFF00000700000A:2252"
    >>> parse_unanswered(f"sl ...\\n0: {'0' * 32}:9C40 {far} 01 00:01 01:63 00000003 0 0")
    ['10.0.0.7:8786']
    """
    found = []
    for line in connections.splitlines()[1:]:
        _, _, far, state, _, _, again, *_ = line.split()
        if state in ("01", "02") and int(again, 16) >= 3:
            address, port = far.split(":")
            words = [address[start : start + 8] for start in range(0, len(address), 8)]
            packed = b"".join(bytes.fromhex(word)[::-1] for word in words)
            ip = str(ipaddress.ip_address(packed.removeprefix(IPV4_MAPPED)))
            found.append(f"[{ip}]:{int(port, 16)}" if ":" in ip else f"{ip}:{int(port, 16)}")
    return found


def unanswered() -> tuple[str, ...]:
    """Return the far ends of this machine's connections that do not answer, each once."""
    found: list[str] = []
    for file in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError):
            found += parse_unanswered(read_text(f"/proc/net/{file}"))
    return tuple(dict.fromkeys(found))


def ran(pid: int, thread: int) -> tuple[int, tuple[str, ...]]:
    """Return the CPU that a process and all below it have used, and how often a thread has run."""
    stats = filter(None, map(process_stat, with_descendants(pid)))
    status = read_text(f"/proc/{pid}/task/{thread}/status").splitlines()
    return sum(stat.cpu_ticks for stat in stats), tuple(line for line in status if "ctxt" in line)


def wait_channel(pid: int, thread: int | None = None) -> str:
    """Return the kernel's function that a process or its thread waits in; "" if that is hidden."""
    try:
        found = read_text(f"/proc/{pid}/task/{thread or pid}/wchan").strip("\0")
    except OSError:
        return ""
    return "" if found == "0" else found


def status_of(pid: int, name: str) -> str:
    """Return a line of /proc/PID/status without its name; "" if it is not there.

    Source: proc_pid_status(5).
    """
    with contextlib.suppress(OSError):
        for line in read_text(f"/proc/{pid}/status").splitlines():
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip()
    return ""


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal, which might end it otherwise."""
    return bool(int(status_of(pid, "SigCgt") or "0", 16) >> (number - 1) & 1)


def tracer(pid: int) -> str:
    """Return the debugger that traces a process, `gdb (pid 12)`; "" for none."""
    number = int(status_of(pid, "TracerPid") or "0")
    stat = process_stat(number) if number else None
    return f"{stat.command} (pid {number})" if stat else ""


def exists(pid: int) -> bool:
    """Return whether this user has a process of this pid, which may be a later one."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def started_by(pid: int, moment: float) -> bool:
    """Return whether a process of this pid is there that was started up to a moment."""
    if not IS_LINUX:
        return exists(pid)
    process = process_stat(pid)
    return process is not None and boot_time() + process.start_ticks / TICKS_PER_S < moment


@contextlib.contextmanager
def memory_file(text: str) -> Iterator[str]:
    """Yield the path of a file in this process's memory, on a Mac of one that only this user reads.

    Source: memfd_create(2).
    """
    if not IS_LINUX:
        import tempfile

        with tempfile.NamedTemporaryFile("w") as file:  # 0600
            file.write(text)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("gputui")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class CpuMeter:
    """The CPU that a process uses between two readings."""

    def __init__(self) -> None:
        self._last: tuple[float, ProcessStat] | None = None

    def percent(self, stat: ProcessStat, now_s: float) -> float | None:
        """Return the percent of one CPU since the reading before; None without one."""
        last, self._last = self._last, (now_s, stat)
        if last is None or now_s <= last[0] or stat.start_ticks != last[1].start_ticks:
            return None
        used_s = (stat.cpu_ticks - last[1].cpu_ticks) / TICKS_PER_S
        return round(100.0 * used_s / (now_s - last[0]), 1)


def own_machine() -> str:
    """Return this machine's name and, if it has one, its machine-id(5): unique together."""
    try:
        return f"{os.uname().nodename} {read_text('/etc/machine-id').strip()}"
    except OSError:
        return os.uname().nodename


def own_place() -> Place:
    """Return where this process is; a Mac says the machine alone."""
    if not IS_LINUX:
        return Place(os.uname().nodename, "", "")
    return Place(
        os.uname().nodename,
        read_text("/proc/sys/kernel/random/boot_id").strip(),
        str(Path("/proc/self/ns/pid").readlink()),
    )


def open_files(pid: int) -> int | None:
    """Return how many files a process has open, None when it cannot be seen.

    From Linux 6.2 on that is the size of the folder, which before was 0. Source: proc_pid_fd(5).
    """
    folder = f"/proc/{pid}/fd"
    try:
        return os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208 - no Path
    except OSError:
        return None


def read_text(path: str) -> str:
    """Return a small kernel file's text, bytes that are no UTF-8 replaced."""
    return read_bytes(path).decode("utf-8", "replace")


def read_bytes(path: str) -> bytes:
    """Return a kernel file's bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def parse_locks(locks: str) -> dict[tuple[str, int], int]:
    """Return the pids that hold files alone by flock(2), by device and inode; `->` are waiting.

    Source: proc_locks(5).

    >>> parse_locks("1: FLOCK  ADVISORY  WRITE 812 fe:00:77 0 EOF\\n1: -> FLOCK ADVISORY")
    {('fe:00', 77): 812}
    """
    found = {}
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[3] == "WRITE":
            device, _, inode = fields[5].rpartition(":")
            found[device, int(inode)] = int(fields[4])
    return found


def flock_holders() -> dict[tuple[str, int], int]:
    """Return the holders of flock(2) locks that this pid namespace shows."""
    try:
        return parse_locks(read_text("/proc/locks"))
    except OSError:
        return {}


def lock_of(status: os.stat_result) -> tuple[str, int]:
    """Return a file's device and inode as `flock_holders` has them."""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino


def is_locked(path: Path) -> bool:
    """Try the flock(2) lock of a file, which no holder in another namespace of pids is hidden from.

    Raises OSError where the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def owner(pid: int) -> int | None:
    """Return the user of a process, None where it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def environment(pid: int) -> frozenset[bytes]:
    """Return the environment that a process was started with; empty where it cannot be read."""
    try:
        return frozenset(read_bytes(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()


def hides_others() -> bool:
    """Return whether /proc hides what others may see of a process (hidepid=)."""
    try:
        read_bytes("/proc/1/cmdline")
    except OSError:
        return True
    return False


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process."""
    found = process_stat(pid)
    return found is not None and found.stopped


def parse_file_system(mountinfo: str, path: str) -> str:
    r"""Return the type of the file system that a path is on.

    Source: proc_pid_mountinfo(5).

    >>> parse_file_system("1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / /home rw - nfs4 b rw", "/home/x")
    'nfs4'
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace(r"\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), right.split()[0]
    return kind


def file_system(path: Path) -> str:
    """Return the type of the file system that a path is on, "" where /proc does not say."""
    try:
        return parse_file_system(read_text("/proc/self/mountinfo"), str(path.resolve()))
    except OSError:
        return ""
