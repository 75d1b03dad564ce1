"""`LocalCluster`'s and `LocalCUDACluster`'s keywords → what a gputui cluster calls the same.

Those that mean something are taken; for the others the error says what to write.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gputui.errors import UsageError
from gputui.protocol.starter import ConfigureHead

NVLINK = "device arrays take the fastest way between workers by themselves"

POOL = (
    "a GPU worker has a pool of its whole share of the device, which grows as it is needed, RMM's "
    "where that is installed"
)

REFUSED: Mapping[str, str] = {
    "protocol": f"it is always TLS, and {NVLINK}",
    "enable_nvlink": NVLINK,
    "enable_infiniband": NVLINK,
    "enable_rdmacm": NVLINK,
    "enable_tcp_over_ucx": NVLINK,
    "processes": "workers are processes",
    "security": "every cluster makes certificates of its own",
    "host": "the scheduler listens on loopback unless a host is another machine; "
    "dask.config.set({'gputui.scheduler.host': …}) says where hosts reach this machine",
    "interface": "dask.config.set({'gputui.scheduler.host': …}) says where hosts reach this one",
    "worker_class": "write a worker plugin: client.register_plugin(…)",
    "worker_dashboard_address": "workers serve no HTTP",
    "pre_import": "dask.config.set({'distributed.worker.preload': [module]})",
    "data": "a GPU worker keeps values on the device, then in host memory, then on disk",
    "jit_unspill": "a GPU worker moves values off the device and back by itself",
    "rmm_maximum_pool_size": f"{POOL}; device_memory_limit bounds what tasks leave on the device",
    "rmm_managed_memory": f"{POOL}, and moves values to host memory and disk where it is full",
    "rmm_release_threshold": POOL,
    "rmm_log_directory": "import rmm in a worker plugin: client.register_plugin(…)",
    "rmm_track_allocations": "RMM's statistics are on where it is installed",
}
"""Keyword → what to do instead."""

HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "protocol": (None, "tls", "tls://"),
    "processes": (True, None),
    "silence_logs": (True, False, None, 10, 20, 30, 40, 50),
    "enable_nvlink": (None, True),
    "host": (None, "127.0.0.1", "localhost"),
    **dict.fromkeys(("rmm_managed_memory", "jit_unspill"), (None, False)),
    "rmm_maximum_pool_size": (None,),
}
"""Values of keywords that ask for nothing else than what is."""


@dataclass(slots=True)
class Translated:
    """What a cluster is to be started with."""

    defaults: list[str] = field(default_factory=list)
    """Options for a line of the hosts file that begins with `*`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of `ConfigureHead`."""
    dask: dict[str, Any] = field(default_factory=dict)
    """Dotted settings of Dask."""

    def hosts(self, text: str) -> str:
        """Return the text of a hosts file with the defaults."""
        return f"* {' '.join(self.defaults)}\n{text}" if self.defaults else text

    def dask_json(self, text: str) -> str:
        """Return Dask's settings as text, with these on top."""
        tree = json.loads(text)
        for name, value in self.dask.items():
            *parents, last = name.split(".")
            where = tree
            for parent in parents:
                where = where.setdefault(parent, {})
            where[last] = where.get(last, {}) | value if isinstance(value, dict) else value
        return json.dumps(tree)


def translate(given: Mapping[str, Any]) -> Translated:
    """Return what these keywords mean.

    Raises UsageError with a line for each that means nothing here.

    >>> translate({"threads_per_worker": 2, "CUDA_VISIBLE_DEVICES": [0, 1]}).defaults
    ['nthreads=2', 'gpus=0,1']
    >>> translate({"protocol": "ucx"})
    Traceback (most recent call last):
    gputui.errors.UsageError: protocol='ucx': it is always TLS, and device arrays take the \
fastest way between workers by themselves
    """
    translated = Translated()
    problems = []
    known = {each.name for each in fields(ConfigureHead)} - {"version", "name", "hosts_text"}
    for name, value in given.items():
        if name in _TAKEN:
            if value is not None:
                _TAKEN[name](translated, value)
        elif name in known:
            translated.settings[name] = value
        elif value not in HARMLESS.get(name, ()):
            meant = REFUSED.get(name) or _unknown(name, known)
            problems.append(f"{name}={value!r}: {meant}")
    if problems:
        raise UsageError("\n".join(problems))
    return translated


def _unknown(name: str, known: set[str]) -> str:
    from gputui.presets.definition import close_names

    close = close_names(name, [*_TAKEN, *known, "hosts", "workers", "min_workers", "timeout"])
    return "no such keyword" + (f" (did you mean {close}?)" if close else "")


def _devices(into: Translated, value: Any) -> None:
    listed = value.split(",") if isinstance(value, str) else value
    into.defaults.append("gpus=" + ",".join(str(each).strip() for each in listed))


def _memory(into: Translated, value: Any) -> None:
    if value != "auto":
        into.defaults.append(f"memory={value}".replace(" ", ""))


def _setting(name: str) -> Callable[[Translated, Any], None]:
    def take(into: Translated, value: Any) -> None:
        from gputui.settings import parse_settings

        if value != "auto":
            parse_settings({name: value})
            into.dask[f"gputui.{name}"] = value

    return take


def _dashboard(into: Translated, value: Any) -> None:
    port = str(value).rpartition(":")[2]
    into.settings["dashboard_address"] = f"127.0.0.1:{port}"


def _option(text: str) -> Callable[[Translated, Any], None]:
    return lambda into, value: into.defaults.append(f"{text}={value}")


_TAKEN: Mapping[str, Callable[[Translated, Any], None]] = {
    "threads_per_worker": _option("nthreads"),
    "nthreads": _option("nthreads"),
    "memory_limit": _memory,
    "device_memory_limit": _setting("device-memory-limit"),
    "rmm_pool_size": _setting("rmm-pool-size"),
    "rmm_async": _setting("rmm-async"),
    "CUDA_VISIBLE_DEVICES": _devices,
    "dashboard_address": _dashboard,
    "local_directory": lambda into, value: into.dask.update(
        {"temporary-directory": str(Path(value).absolute())}
    ),
    "env": lambda into, value: into.dask.update({"distributed.nanny.environ": dict(value)}),
    "resources": lambda into, value: into.dask.update({"distributed.worker.resources": value}),
}
