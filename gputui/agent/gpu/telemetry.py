"""Read this host and its workers, once a second: `TelemetryReader.read` → `Telemetry`.

Called by the agent. It reads /proc, takes the GPUs as their own threads read them last, and so
never waits for them. Rates are taken between two calls: the first call has none. They are rounded
here, as more digits would be sent each second and seen by nobody.
"""

import math
import os
import time
from collections.abc import Callable, Mapping

from gputui.agent.gpu.watch import DeviceWatch
from gputui.model.readings import HostReading
from gputui.process import procfs
from gputui.process.cgroups import Cgroups, memory
from gputui.protocol.agent import Telemetry, WorkerReading


class TelemetryReader:
    """Reads the host, the workers and, through `watch`, the GPUs; belongs to one thread."""

    def __init__(self, watch: DeviceWatch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch = watch
        self._clock = clock
        self._host = HostMeter(clock)
        self._meters: dict[int, procfs.CpuMeter] = {}
        """By worker's pid."""

    def read(self, worker_pids: Mapping[str, int]) -> Telemetry:
        """Return everything as it is now; `worker_pids` are the running workers by name."""
        pids = worker_pids.values()
        self._watch.processes.workers = frozenset(pids)
        self._meters = {pid: self._meters.get(pid) or procfs.CpuMeter() for pid in pids}
        return Telemetry(
            at=time.time(),
            host=self._host.read(),
            devices=self._watch.devices(),
            workers=tuple(
                self._read_worker(name, pid) for name, pid in sorted(worker_pids.items())
            ),
        )

    def _read_worker(self, name: str, pid: int) -> WorkerReading:
        """Return a worker now, all None when its process is gone."""
        if (stat := procfs.process_stat(pid)) is None:
            return WorkerReading(name)
        percent = self._meters[pid].percent(stat, self._clock())
        return WorkerReading(
            name,
            cpu_percent=percent,
            rss_bytes=stat.rss_bytes,
            open_files=procfs.open_files(pid),
            stopped=stat.stopped,
        )


class HostMeter:
    """The host's CPU, memory, load and network; CPU and memory of what the cgroup allows."""

    def __init__(self, clock: Callable[[], float], cgroups: Cgroups | None = None) -> None:
        self._clock = clock
        self._cgroups = cgroups or Cgroups()
        self._cpu = procfs.cpu_times()
        self._quota = (clock(), self._cgroups.cpu())
        self._traffic = (clock(), _traffic())

    def read(self) -> HostReading:
        """Return the host now, rates since the last call."""
        use = memory(self._cgroups)
        received, sent = self._network_rates()
        return HostReading(
            cpu_percent=self._cpu_percent(),
            memory_used_bytes=use.used_bytes,
            memory_total_bytes=use.total_bytes,
            load_1m=os.getloadavg()[0],
            network_receive_bytes_per_s=received,
            network_send_bytes_per_s=sent,
        )

    def _cpu_percent(self) -> float | None:
        """Return how busy the machine is; or this cgroup, where its quota is less than that."""
        before, self._cpu = self._cpu, procfs.cpu_times()
        (before_s, quota_before), self._quota = self._quota, (self._clock(), self._cgroups.cpu())
        now_s, quota = self._quota
        cpus, used_s = quota or (math.inf, None)
        if used_s is None or cpus >= (os.cpu_count() or 1):
            return percent(self._cpu.busy - before.busy, self._cpu.total - before.total)
        used_before_s = quota_before[1] if quota_before else None
        if used_before_s is None:
            return None
        return percent(used_s - used_before_s, cpus * (now_s - before_s))

    def _network_rates(self) -> tuple[float | None, float | None]:
        before_s, before = self._traffic
        now_s, now = self._traffic = (self._clock(), _traffic())
        grown = [
            (received - before[name][0], sent - before[name][1])
            for name, (received, sent) in now.items()
            if name in before
        ]
        grown = [each for each in grown if min(each) >= 0]
        if now_s <= before_s or (now and not grown):
            return None, None
        received, sent = (sum(way) / (now_s - before_s) for way in zip((0, 0), *grown, strict=True))
        return float(round(received)), float(round(sent))


def _traffic() -> dict[str, tuple[int, int]]:
    """Return the bytes that each interface received and sent since it came up."""
    counters = procfs.network_counters()
    return {name: counters[name] for name in counted_interfaces(frozenset(counters))}


def percent(part: float, whole: float) -> float | None:
    """Return a share that two counters show; None where no time has passed between them.

    >>> percent(1.0, 3.0), percent(2.1, 2.0), percent(0.0, 0.0)
    (33.3, 100.0, None)
    """
    return round(min(100.0, max(0.0, 100.0 * part / whole)), 1) if whole > 0 else None


def counted_interfaces(names: frozenset[str]) -> frozenset[str]:
    """Return the interfaces that carry traffic off the machine, each byte once.

    Those with hardware; in a container, which sees none of it, all but the loopback.
    """
    return frozenset(name for name in names if procfs.has_hardware(name)) or names - {"lo"}
