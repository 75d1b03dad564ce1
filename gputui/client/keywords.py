"""The arguments of Dask's clusters, and of their `adapt` → gputui's own.

Those of `LocalCluster` and `LocalCUDACluster` that mean something are taken; for the others the
error says what to write.
"""

import inspect
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from dask.utils import parse_bytes, parse_timedelta
from distributed.deploy import Adaptive
from distributed.scheduler import Scheduler
from distributed.system import MEMORY_LIMIT

from gputui.errors import UsageError
from gputui.model.bounds import MOST_WORKERS
from gputui.model.readings import Wanted
from gputui.presets.definition import did_you_mean
from gputui.protocol.starter import ConfigureHead
from gputui.settings import KEYS, parse_settings

NVLINK = "device arrays take the fastest way between workers by themselves"

POOL = (
    "a GPU worker has a pool of its whole share of the device, which grows as it is needed, RMM's "
    "where that is installed"
)

LISTENS = (
    "the scheduler listens on loopback unless a host is another machine; "
    "dask.config.set({'gputui.scheduler.host': …}) says where hosts reach this machine"
)
PLUGIN = "write a plugin: client.register_plugin(…)"

REFUSED: Mapping[str, str] = {
    "protocol": f"it is always TLS, and {NVLINK}",
    "enable_nvlink": NVLINK,
    "enable_infiniband": NVLINK,
    "enable_rdmacm": NVLINK,
    "enable_tcp_over_ucx": NVLINK,
    "processes": "workers are processes",
    "security": "every cluster makes certificates of its own",
    "host": LISTENS,
    "ip": LISTENS,
    "interface": LISTENS,
    "start": "await GPUCluster(asynchronous=True) where it is to start later",
    "silence_logs": "a level of logging, such as 30",
    "worker_class": PLUGIN,
    "services": PLUGIN,
    "worker_services": PLUGIN,
    "service_kwargs": PLUGIN,
    "blocked_handlers": "dask.config.set({'distributed.scheduler.blocked-handlers': […]})",
    "scheduler_kwargs": "dask.config.set({'distributed.scheduler.…': …})",
    "scheduler_sync_interval": "the scheduler gets the cluster's name once, and that stays",
    "worker_dashboard_address": "workers serve no HTTP",
    "nanny": "workers have an agent, which restarts them",
    "death_timeout": "workers live on for GPUCluster(lease_s=…) without their head",
    "data": "a GPU worker keeps values on the device, then in host memory, then on disk",
    "shared_filesystem": "each host has a scratch folder of its own: local_directory",
    "jit_unspill": "a GPU worker moves values off the device and back by itself",
    "log_spilling": "the screen shows what each worker spilled",
    "rmm_maximum_pool_size": f"{POOL}; device_memory_limit bounds what tasks leave on the device",
    "rmm_managed_memory": f"{POOL}, and moves values to host memory and disk where it is full",
    "rmm_release_threshold": POOL,
    "rmm_log_directory": f"import rmm in a worker plugin; {PLUGIN}",
    "rmm_track_allocations": "RMM's statistics are on where it is installed",
    "rmm_allocator_external_lib_list": "CuPy uses RMM where it is installed; for others "
    "set it in a worker plugin: client.register_plugin(…)",
}
"""Keyword → what to do instead; None is accepted."""

HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "protocol": ("tls", "tls://"),
    "processes": (True,),
    "security": (True,),
    "start": (True,),
    "nanny": (True,),
    "scheduler_sync_interval": (1,),
    "silence_logs": (True, False, 10, 20, 30, 40, 50),
    "enable_nvlink": (True,),
    "host": ("127.0.0.1", "localhost"),
    "rmm_track_allocations": (True, False),
    "shared_filesystem": (True, False),
    **dict.fromkeys(("enable_infiniband", "enable_rdmacm", "enable_tcp_over_ucx"), (False,)),
    **dict.fromkeys(("rmm_managed_memory", "jit_unspill", "log_spilling"), (False,)),
}
"""Values of refused keywords that are accepted: they match gputui's behaviour."""


UNLIMITED = ("memory_limit", "device_memory_limit")
"""Keywords for which None means no limit."""


@dataclass(slots=True)
class Translated:
    """Keywords as gputui's own arguments."""

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
    """Translate keywords of LocalCluster and LocalCUDACluster into gputui's.

    Raises UsageError with a line for each that means nothing here, or at once for a value that
    cannot be read.

    >>> translate({"threads_per_worker": 2, "CUDA_VISIBLE_DEVICES": [0, 1]}).defaults
    ['nthreads=2', 'gpus=0,1']
    >>> translate({"protocol": "ucx"})
    Traceback (most recent call last):
    gputui.errors.UsageError: protocol='ucx': it is always TLS, and device arrays take the \
fastest way between workers by themselves
    """
    translated = Translated()
    problems = []
    of_heads = {each.name for each in fields(ConfigureHead)}
    known = {field: key for key, (field, _) in KEYS.items() if field in of_heads}
    for name, value in given.items():
        if name in _TAKEN:
            try:
                if value is not None or name in UNLIMITED:
                    _TAKEN[name](translated, value)
            except TypeError:
                problems.append(f"{name}={value!r}: write a text, or a list of them")
        elif name in known:
            try:
                translated.settings[name] = getattr(parse_settings({known[name]: value}), name)
            except UsageError as error:
                problems.append(str(error))
        elif name not in REFUSED:
            own = ("hosts", "workers", "n_workers", "min_workers", "timeout")
            hint = did_you_mean(name, [*_TAKEN, *known, *own])
            problems.append(f"{name}={value!r}: no such keyword{hint}")
        elif value is not None and value not in HARMLESS.get(name, ()):
            problems.append(f"{name}={value!r}: {REFUSED[name]}")
    if problems:
        raise UsageError("\n".join(problems))
    return translated


def whole_number(name: str, value: Any) -> int | None:
    """Return a number of workers, NumPy's or Python's; raises UsageError for anything else.

    >>> whole_number("n_workers", -1)
    Traceback (most recent call last):
    gputui.errors.UsageError: n_workers=-1: write a whole number from 0 to 1000000
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        if not isinstance(value, bool) and 0 <= (number := operator.index(value)) <= MOST_WORKERS:
            return number
    except TypeError:
        pass
    raise UsageError(f"{name}={value!r}: write a whole number from 0 to {MOST_WORKERS}")


def seconds(name: str, value: Any) -> float | None:
    """Return a duration in seconds, given as a number or as "15s"; None stays None. Raises
    UsageError."""
    return amount(name, value, parse_timedelta)


def amount(name: str, value: Any, parse: Callable[[Any], float]) -> float | None:
    """Return a number from 0, as Dask's function reads it; raises UsageError."""
    try:
        number = None if value is None else float(parse(value))
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        number = -1.0
    if (number is not None and not 0 <= number < math.inf) or isinstance(value, bool):
        example = {"cores": "8", "memory": "'64 GiB'"}.get(name, "'15s'")
        raise UsageError(f"{name}={value!r}: write a number such as {example}")
    return number


def _devices(into: Translated, value: Any) -> None:
    listed = value.split(",") if isinstance(value, str) else value
    listed = [listed] if isinstance(listed, int) else listed
    into.defaults.append("gpus=" + ",".join(str(each).strip() for each in listed))


def _memory(into: Translated, value: Any) -> None:
    if isinstance(value, float) and 0 < value <= 1:  # a share of this machine's, as Dask takes it
        value = int(value * MEMORY_LIMIT)
    if value is None or value == 0:  # as Dask means them
        value = "none"
    if value != "auto":
        into.defaults.append(f"memory={value}".replace(" ", ""))


def _setting(name: str, unlimited: Any = None) -> Callable[[Translated, Any], None]:
    def take(into: Translated, value: Any) -> None:
        value = unlimited if value is None else value
        if value not in (None, "auto", "default"):
            parse_settings({name: value})
            into.dask[f"gputui.{name}"] = value

    return take


def _dashboard(into: Translated, value: Any) -> None:
    port = str(value).rpartition(":")[2]
    if not port.isdecimal() or int(port) >= 2**16:
        raise UsageError(f"dashboard_address={value!r}: write a port, such as ':8787'")
    into.settings["dashboard_port"] = int(port)


def _option(text: str) -> Callable[[Translated, Any], None]:
    return lambda into, value: into.defaults.append(f"{text}={value}")


def _dask(name: str) -> Callable[[Translated, Any], None]:
    return lambda into, value: into.dask.update({name: value})


def _load(into: Translated, modules: Iterable[str]) -> None:
    """Have workers load these, after those that another keyword names."""
    earlier = into.dask.get("distributed.worker.preload", [])
    into.dask["distributed.worker.preload"] = [*earlier, *modules]


def _free(field: str, parse: Callable[[Any], Any]) -> Callable[[Translated, Any], None]:
    """Return a function that takes one field of the free GPUs wanted."""

    def take(into: Translated, value: Any) -> None:
        before = into.settings.get("wanted", Wanted())
        into.settings["wanted"] = replace(before, **{field: parse(value)})

    return take


def _resources(into: Translated, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise UsageError(f"resources={value!r}: write numbers by name, such as {{'GPU': 1}}")
    into.dask["distributed.worker.resources"] = dict(value)


def _environ(into: Translated, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise UsageError(f"env={value!r}: write values by name, such as {{'NCCL_DEBUG': 'INFO'}}")
    into.dask["distributed.nanny.environ"] = into.dask.get("distributed.nanny.environ", {}) | value


_TAKEN: Mapping[str, Callable[[Translated, Any], None]] = {
    "threads_per_worker": _option("nthreads"),
    "nthreads": _option("nthreads"),
    "memory_limit": _memory,
    "device_memory_limit": _setting("device-memory-limit", unlimited=1.0),
    "rmm_pool_size": _setting("rmm-pool-size"),
    "rmm_async": _setting("rmm-async"),
    "enable_cudf_spill": lambda into, value: _environ(
        into, {"CUDF_SPILL": "on" if value else "off"}
    ),
    "cudf_spill_stats": lambda into, value: _environ(into, {"CUDF_SPILL_STATS": str(value)}),
    "CUDA_VISIBLE_DEVICES": _devices,
    "dashboard_address": _dashboard,
    "gpus": _free("count", partial(whole_number, "gpus")),
    "gpus_per_host": _free("per_host", partial(whole_number, "gpus_per_host")),
    "memory_free": _free(
        "memory_bytes", lambda value: int(amount("memory_free", value, parse_bytes) or 0)
    ),
    "wait": _free("wait_s", partial(seconds, "wait")),
    "local_directory": lambda into, value: into.dask.update(
        {"temporary-directory": str(Path(value).absolute())}
    ),
    "env": _environ,
    "resources": _resources,
    "preload": lambda into, value: _load(into, [value] if isinstance(value, str) else value),
    "preload_argv": _dask("distributed.worker.preload-argv"),
    "pre_import": lambda into, value: _load(
        into, value.split(",") if isinstance(value, str) else value
    ),
    "lifetime": _dask("distributed.worker.lifetime.duration"),
    "lifetime_stagger": _dask("distributed.worker.lifetime.stagger"),
    "lifetime_restart": _dask("distributed.worker.lifetime.restart"),
    **{
        f"memory_{each}_fraction": _dask(f"distributed.worker.memory.{each}")
        for each in ("target", "spill", "pause", "terminate")
    },
}


def check_adapt(options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option of `adapt` that Dask would misread or swallow."""
    whole = {
        name: whole_number(name, options.get(name))
        for name in ("minimum", "maximum", "wait_count")
        if options.get(name) != math.inf
    }
    least, most = whole["minimum"] or 0, whole.get("maximum")
    if most is not None and least > most:
        raise UsageError(f"minimum={least}, maximum={most}: the minimum is the greater one")
    for name in ("interval", "target_duration"):
        seconds(name, options.get(name))
    usual = [name for name in inspect.signature(Adaptive).parameters if name != "kwargs"]
    choosing = inspect.signature(Scheduler.workers_to_close).parameters
    known = {*usual, *choosing} - {"self", "cluster", "key", "target", "attribute"}
    if unknown := sorted(options.keys() - known):
        hint = did_you_mean(unknown[0], known)
        raise UsageError(f"{unknown[0]}={options[unknown[0]]!r}: adapt has no such option{hint}")
