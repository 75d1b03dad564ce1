"""Gather a host's facts, once for each head: `gather_facts` → `Facts`.

Called by the agent in a thread of its own. Nothing waits for NVML longer than the timeout.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from gputui.agent.gpu.processes import mps_warnings
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.limits import limits
from gputui.agent.packages import installed
from gputui.process.cgroups import Cgroups, memory
from gputui.process.procfs import hides_others
from gputui.protocol.agent import Facts

NVML_TIMEOUT_S = 8.0
"""Opening NVML takes a second or more for each GPU where nothing keeps the driver awake."""


def gather_facts(
    watch: DeviceWatch,
    *,
    scratch: Path,
    environ: Mapping[str, str],
    timeout_s: float = NVML_TIMEOUT_S,
) -> Facts:
    """Return this host's facts; `running` is left empty for the agent to fill.

    Waits at most `timeout_s` for the first reading of the GPUs.
    """
    packages = installed()
    watch.wait(timeout_s)
    devices = watch.devices()
    others_mps = mps_warnings(os.getuid()) if devices else ()
    return Facts(
        agent_pid=os.getpid(),
        python=sys.executable,
        python_version=sys.version.split()[0],
        packages=packages,
        cuda_driver=watch.cuda_version,
        cpus=usable_cpus(),
        memory_total_bytes=memory().total_bytes,
        disk_free_bytes=disk_free(scratch) or 0,
        devices=devices,
        cuda_visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
        running=(),
        warnings=(*watch.warnings(), *others_mps),
        gpus_known=watch.opened.is_set(),
        others_hidden=hides_others(),
        limits=tuple(limits(scratch, len(devices))),
    )


def usable_cpus() -> int:
    """Return how many CPUs this process may use: its affinity and its cgroups' quota."""
    affinity = len(os.sched_getaffinity(0))
    return min(affinity, Cgroups().cpus() or affinity)


def disk_free(folder: Path) -> int | None:
    """Return the bytes this user may still write in a folder, which need not exist yet."""
    for candidate in (folder, *folder.parents):
        try:
            return shutil.disk_usage(candidate).free
        except OSError:
            continue
    return None
