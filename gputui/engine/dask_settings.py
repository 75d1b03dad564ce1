"""Dask's settings in a gputui cluster: the user's own, over gputui's, over Dask's defaults.

`given_json` is what the process that starts a cluster was given: YAML files, the environment and
`dask.config.set`. It reaches the scheduler and every worker as text, and `apply` makes it hold
there, over that host's own files and environment. What only an agent can do, which has no Dask, is
read from the same text. `apply` is called once in each process, before anything reads a setting.
"""

import json
import logging
import os
import site
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

logger = logging.getLogger("gputui")

SETTINGS: dict[str, Any] = {
    # A GPU worker has one thread and short tasks: with Dask's 1.1 it waits for the scheduler
    # after every second one.
    "distributed.scheduler.worker-saturation": 4.0,
    # A worker whose task holds the GIL for minutes is at work, not gone; whether it lives is
    # known to its agent, and a lost host's workers are removed when its lease runs out.
    "distributed.scheduler.worker-ttl": None,
    # A task that ends workers fails after the third, with its key; with Dask's 3 after the fourth.
    "distributed.scheduler.allowed-failures": 2,
    # A statistical profile every 10 ms costs the one Python thread that feeds a GPU.
    "distributed.worker.profile.interval": "100ms",
    # The agents read NVML once for all workers of a host, in a thread of their own; Dask would
    # in each worker's event loop.
    "distributed.diagnostics.nvml": False,
    # No worker serves HTTP, so there is nothing to route.
    "distributed.worker.http.routes": [],
    # Their agent reads the CPU and memory of workers every second, and the head the scheduler's.
    "distributed.admin.system-monitor.interval": "2s",
    # A timer every 20 ms wakes an idle process 50 times a second, only to measure its delay.
    "distributed.admin.tick.interval": "200ms",
    "distributed.admin.tick.cycle": "2s",
}
"""gputui's own, each with its reason; all are defaults."""

DEVICE_SETTINGS: dict[str, Any] = {
    # Dask's peer-to-peer rechunk raises TypeError on CuPy arrays (distributed 2026.8, `memoryview`
    # in `shuffle._core._mean_shard_size`), and its shuffle takes cuDF through host memory and
    # files: a merge of 80 M by 40 M rows took 25 s so on an H100, and 6 s as tasks.
    "array.rechunk.method": "tasks",
    "dataframe.shuffle.method": "tasks",
    # A worker asks another for so much at a time. Between workers of one host handles travel: 1 GiB
    # takes 10 ms over NVLink, as long as one message, and Dask's 50 MB a fifth of that.
    "distributed.worker.transfer.message-bytes-limit": "1GiB",
}
"""Where arrays of a GPU are: where CuPy is. All are defaults, too."""

_AGENT = "workers have an agent in place of a nanny: use distributed.worker."
_OWN = "each cluster makes certificates of its own"
UNUSED: Mapping[str, str] = {
    "distributed.nanny.preload": f"{_AGENT}preload",
    "distributed.nanny.preload-argv": f"{_AGENT}preload-argv",
    "distributed.worker.http.routes": "no worker serves HTTP",
    "distributed.admin.event-loop": "every process runs asyncio's own loop",
    "distributed.comm.tls.ca-file": _OWN,
    **{
        f"distributed.comm.tls.{role}.{part}": _OWN
        for role in ("scheduler", "worker", "client")
        for part in ("cert", "key")
    },
}
"""Settings without effect on a cluster, and why."""

NOTEBOOK = "gputui.client.running"
"""The module that clients of a notebook preload; those of tasks do not have it."""

TERMINATE = 0.95
"""Of its memory limit: where a worker is ended. Source: distributed.worker.memory.terminate."""


def is_configured() -> bool:
    """Return whether anything may be given, without an import of Dask: half the start of a command.

    A process that has imported Dask may have set something.
    """
    if "dask" in sys.modules or any(name.startswith("DASK_") for name in os.environ):
        return True
    return any(place.is_file() or any(place.glob("*")) for place in files_and_folders())


def files_and_folders() -> tuple[Path, ...]:
    """Return where Dask looks for configuration, unless a variable says else.

    Source: `dask.config.paths` (dask 2026.8).
    """
    prefixes = dict.fromkeys((sys.prefix, *site.PREFIXES))
    return (
        Path("/etc/dask"),
        *(Path(prefix, "etc/dask") for prefix in prefixes),
        Path.home() / ".config/dask",
    )


def given() -> dict[str, Any]:
    """Return the settings given to this process over all defaults, nested as Dask keeps them.

    A value that is set to what it is by default counts, too: Dask keeps the very object of the
    default until somebody sets another. Python has only one True, False and None, so that these
    count where a file or the environment names them.
    """
    if not is_configured():
        return {}
    import dask.config

    defaults = dask.config.merge(*dask.config.defaults)
    found = _over(dask.config.config, defaults, dask.config.collect())
    if folder := found.get("temporary-directory"):
        found["temporary-directory"] = str(Path(folder).absolute())
    return found


def given_json() -> str:
    """Return `given` as text for other processes; what means nothing there is warned about."""
    found = given()
    for name, hint in UNUSED.items():
        if _named(name, found) not in (None, [], "asyncio", "tornado"):
            logger.warning("Dask setting %s is not used: %s", name, hint)
    if preload := _named("distributed.client.preload", found):
        kept = [each for each in listed(preload) if each != NOTEBOOK]
        found["distributed"]["client"]["preload"] = kept
    return json.dumps(_sendable(found))


def listed(preload: Any) -> list[str]:
    """Return the modules of a preload, which may be one word, as Dask takes it."""
    return [preload] if isinstance(preload, str) else list(preload)


def apply(text: str) -> None:
    """Make gputui's settings this process's defaults; its own configuration and `text` override
    them."""
    import dask.config

    own, settings = given(), dict[str, Any]()
    dask.config.set(SETTINGS | _for_devices(), config=settings)
    dask.config.update_defaults(settings)
    for mapping in (own, json.loads(text)):
        dask.config.update(dask.config.config, mapping)


@contextmanager
def devices_preferred() -> Iterator[None]:
    """Have collections that are made here suit a GPU's arrays, unless this process says else."""
    import dask.config

    unset = {k: v for k, v in _for_devices().items() if dask.config.get(k, None) is None}
    with dask.config.set(unset):
        yield


def _for_devices() -> dict[str, Any]:
    return DEVICE_SETTINGS if find_spec("cupy") else {}


def worker_environment(text: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that workers are to be started with.

    >>> worker_environment('{"distributed": {"nanny": {"environ": {"A": 1}}}}')
    (('A', '1'),)
    """
    given = json.loads(text)
    variables: dict[str, Any] = {}
    for name in ("distributed.nanny.pre-spawn-environ", "distributed.nanny.environ"):
        variables |= _named(name, given) or {}
    return tuple((name, str(value)) for name, value in variables.items() if value is not None)


def temporary_directory(text: str) -> str | None:
    """Return where workers are to keep their files; None is where the host keeps such things."""
    folder: str | None = _named("temporary-directory", json.loads(text))
    return folder


def terminate_share(text: str) -> float | None:
    """Return the share of its memory limit at which a worker is ended; None is never.

    >>> terminate_share('{"distributed": {"worker": {"memory": {"terminate": false}}}}')
    >>> terminate_share("{}")
    0.95
    """
    return _named("distributed.worker.memory.terminate", json.loads(text), TERMINATE) or None


def _named(name: str, tree: Any, default: Any = None) -> Any:
    """Return a setting of those that were given, where there is no Dask."""
    for key in name.split("."):
        written = (key, key.replace("-", "_"))  # variables of the environment have no hyphens
        found = [each for each in written if isinstance(tree, Mapping) and each in tree]
        if not found:
            return default
        tree = tree[found[0]]
    return tree


def _over(config: Any, defaults: Any, named: Any) -> dict[str, Any]:
    """Return the part of a configuration that differs from the defaults, or is in `named`."""
    from dask.config import canonical_name

    found: dict[str, Any] = {}
    for written, value in config.items():
        key = canonical_name(written, defaults)  # variables of the environment have no hyphens
        before = defaults.get(key, _ABSENT)
        name = named.get(canonical_name(written, named), _ABSENT)
        if isinstance(value, Mapping):
            inner = _over(value, *(x if isinstance(x, Mapping) else {} for x in (before, name)))
            found |= {key: inner} if inner else {}
        elif name is not _ABSENT or value is not before:
            found[key] = value
    return found


_ABSENT = object()


def _sendable(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            sent[str(key)] = _sendable(value, f"{before}{key}.")
            continue
        try:
            sent[str(key)] = json.loads(json.dumps(value, default=os.fspath))
        except TypeError:
            kind = type(value).__name__
            logger.warning("Dask setting %s%s stays here: a %s cannot be sent", before, key, kind)
    return sent
