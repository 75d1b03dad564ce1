"""Gather a host's facts, once for each head: `gather_facts` → `Facts`, with its limits.

Called by the agent in a thread of its own. Nothing waits for NVML longer than the timeout.
"""

import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gputui.agent.gpu.processes import mps_warnings
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.packages import installed
from gputui.process.cgroups import Cgroups, memory
from gputui.process.procfs import hides_others
from gputui.protocol.agent import Facts

NVML_TIMEOUT_S = 8.0
"""Opening NVML takes a second or more for each GPU where nothing keeps the driver awake."""

THREADS = 64
"""Of a worker, and of an agent with its forkserver."""
MANY_TASKS = 20_000
"""A limit on a user's threads that is as high is not reached: nothing is counted."""
MEMORY_BYTES = 2**29
"""Of a worker without data, and of an agent with its forkserver."""
LOGIND = ("usr/lib", "run", "etc")
"""Where logind's files are; a file in a later one replaces one of the same name."""
LIMITS_CONF = "in /etc/security/limits.conf, or in what starts sshd there"
SLICE = "of user-.slice there (systemctl set-property)"


def gather_facts(
    watch: DeviceWatch,
    *,
    scratch: Path,
    environ: Mapping[str, str],
    problem: str = "",
    timeout_s: float = NVML_TIMEOUT_S,
) -> Facts:
    """Return this host's facts; `running` is left empty for the agent to fill.

    `problem` is why claims are not known, which only matters where there are GPUs.
    Waits at most `timeout_s` for the first reading of the GPUs.
    """
    packages = installed()
    watch.wait(timeout_s)
    devices = watch.devices()
    affinity = len(os.sched_getaffinity(0))
    others = (*mps_warnings(os.getuid()), *filter(None, [problem])) if devices else ()
    return Facts(
        agent_pid=os.getpid(),
        python=sys.executable,
        python_version=sys.version.split()[0],
        packages=packages,
        cuda_driver=watch.cuda_version,
        cpus=min(affinity, Cgroups().cpus() or affinity),
        memory_total_bytes=memory().total_bytes,
        disk_free_bytes=shutil.disk_usage(scratch).free,
        devices=devices,
        cuda_visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
        running=(),
        warnings=(*watch.warnings(), *others),
        gpus_known=watch.opened.is_set(),
        others_hidden=hides_others(),
        limits=tuple(limits(scratch, len(devices))),
    )


def limits(scratch: Path, gpus: int) -> Iterator[tuple[str, str]]:
    """Yield (limit, what to set) of those that will end or throttle an agent and its workers.

    What a limit leaves is compared with the needs of a worker for each GPU.
    """
    workers = max(1, gpus)
    cpu_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if cpu_s != resource.RLIM_INFINITY:
        yield f"a process is killed after {cpu_s} s of CPU time (ulimit -t)", f"cpu {LIMITS_CONF}"
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.getuid() and 0 <= most < MANY_TASKS:
        left = most - _own_threads()
        if left < THREADS * (workers + 1):
            text = f"this user may run {left} more processes and threads (ulimit -u {most})"
            yield text, f"nproc {LIMITS_CONF}; a worker has some {THREADS}"
    groups = Cgroups()
    now, most = groups.tasks() or (0, MANY_TASKS)
    if most - now < THREADS * (workers + 1):
        text = f"its control group may have {most - now} more processes and threads (pids.max)"
        yield text, f"TasksMax {SLICE}; a worker has some {THREADS}"
    use = groups.memory()
    if use and use.total_bytes < MEMORY_BYTES * (workers + 1):
        text = f"its control group may have {use.total_bytes >> 20} MiB of memory (memory.max)"
        yield text, f"MemoryMax {SLICE}, or fewer workers"
    quota = groups.cpu()
    if quota and quota[0] < workers:
        text = f"its control group may use {quota[0]:g} CPUs (cpu.max), so workers are throttled"
        yield text, f"CPUQuota {SLICE}"
    session = r"/session-[^/]*\.scope"
    if os.getuid() and re.search(session, Path("/proc/self/cgroup").read_text()) and logind_kills():
        text = "logind kills all that a login started when it ends: workers have no lease"
        yield text, "KillUserProcesses=no in logind.conf there, or KillExcludeUsers=USER"
    if os.statvfs(scratch).f_flag & os.ST_NOEXEC:
        text = f"no program can be run from {scratch.parent}, which is mounted noexec"
        yield text, "env.TMPDIR=PATH on its line, for --send and for what tasks compile"


def _own_threads() -> int:
    """Return how many threads this user's processes have."""
    own, count = os.getuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == own:
                count += len(list((process / "task").iterdir()))
        except OSError:  # it has ended
            continue
    return count


def logind_kills(root: Path = Path("/")) -> bool:
    """Return whether logind ends a user's processes with the login. Source: logind.conf(5)."""
    main = [root / each / "systemd/logind.conf" for each in LOGIND]
    folders = [root / each / "systemd/logind.conf.d" for each in LOGIND]
    parts = {part.name: part for folder in folders for part in folder.glob("*.conf")}
    files = [*main, *(parts[name] for name in sorted(parts))]
    texts = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
    set_to = re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", texts, re.M)
    return bool(set_to) and set_to[-1].lower() in ("yes", "true", "on", "1")
