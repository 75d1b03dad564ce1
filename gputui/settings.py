"""The users' settings: `~/.config/dask/gputui.yaml` and `DASK_GPUTUI__…`, by Dask's rules.

The process that starts a cluster reads them for its head's `ConfigureHead`; flags of
the command line come over these.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gputui.engine.dask_settings import is_configured
from gputui.errors import UsageError
from gputui.protocol.starter import Settings

KEYS = {
    "lease": ("lease_s", float),
    "stage-timeout": ("stage_timeout_s", float),
    "idle-timeout": ("idle_timeout_s", float),
    "head-cpus": ("head_cpus", int),
    "busy": ("busy", str),
    "scheduler.host": ("scheduler_host", str),
    "scheduler.port": ("scheduler_port", int),
    "ssh.config": ("ssh_config", str),
    "ssh.remote-gputui": ("remote_gputui", str),
    "runs.kept": ("runs_kept", int),
    "notify": ("notify", str),
}
"""Key below `gputui` → field and type."""

BUSY = ("warn", "skip", "refuse")

BOUNDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "lease_s": ("seconds above 0", lambda value: 0 < value < math.inf),
    "stage_timeout_s": ("seconds above 0", lambda value: 0 < value < math.inf),
    "idle_timeout_s": ("seconds, or nothing", lambda value: value is None or 0 <= value < math.inf),
    "head_cpus": ("a whole number from 1, or nothing", lambda value: value is None or value >= 1),
    "busy": (f"one of {', '.join(BUSY)}", lambda value: value in BUSY),
    "scheduler_port": ("a port from 0 to 65535", lambda value: 0 <= value < 2**16),
    "runs_kept": ("a whole number from 0", lambda value: value >= 0),
}
"""Field → its description and check."""

WORKER_KEYS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "transfers": ("auto or bytes", lambda value: value in ("auto", "bytes")),
    "device-memory-limit": ("bytes, or a share up to 1.0", lambda value: _is_limit(value)),
    "rmm-pool-size": ("bytes, or a share up to 1.0", lambda value: _is_limit(value)),
    "rmm-async": ("True or False", lambda value: value in (True, False, None)),
}
"""Key below `gputui` that only workers read, in their Dask settings → description and check."""


def load_settings() -> Settings:
    """Return the settings of this user's Dask configuration.

    Raises UsageError, and Dask's own error for a malformed file: `malformed` makes words of it.
    """
    if not is_configured():
        return Settings()
    import dask.config

    ours, dasks = dask.config.get("gputui", None) or {}, dask.config.get("distributed", None) or {}
    _check_section("gputui", ours, "{lease: 30}")
    _check_section("distributed", dasks, "{worker: {memory: {pause: 0.9}}}")
    return parse_settings(ours)


def _check_section(name: str, tree: object, such_as: str) -> None:
    """Raise UsageError, which names the file, where a section is no mapping."""
    import dask.config

    if isinstance(tree, Mapping):
        return
    files = dask.config.collect_yaml(dask.config.paths, return_paths=True)
    named = [file for file, content in files if content.get(name) == tree]
    where = _place(named[-1], rf"^{name}\b") if named else f"DASK_{name.upper()}"
    raise UsageError(f"{where}: {name}: {tree!r} is not a mapping, such as {such_as}")


def malformed(error: ValueError) -> UsageError:
    """Return the error for a malformed file of the Dask configuration.

    dask 2026.8 reads all files as it is imported, and raises ValueError with the path. Returns the
    error itself, as UsageError, where it is another one.
    """
    import yaml

    found = re.match(r"A dask config file at '(.*?)' is malformed", str(error))
    if not found:
        return UsageError(f"Dask's configuration: {error}")
    path = Path(found[1])
    data = path.read_bytes()
    try:
        content = yaml.safe_load(data.decode())
    except UnicodeDecodeError as bad:
        return UsageError(f"{path}:{data[: bad.start].count(10) + 1}: not a text in UTF-8")
    except yaml.YAMLError as bad:
        mark = getattr(bad, "problem_mark", None)
        what = getattr(bad, "problem", bad)
        return UsageError(f"{path}:{mark.line + 1 if mark else 1}: {what}")
    return UsageError(f"{path}:1: a {type(content).__name__}, where `key: value` is expected")


def _place(path: Path, pattern: str) -> str:
    """Return `file:line` of the first line that matches."""
    lines = path.read_text(errors="replace").splitlines()
    return f"{path}:{next((n for n, line in enumerate(lines, 1) if re.search(pattern, line)), 1)}"


def parse_settings(tree: Mapping[str, Any]) -> Settings:
    """Return the settings of a configuration tree; raises UsageError naming each bad key.

    >>> parse_settings({"lease": 30, "scheduler": {"port": "8786"}}).scheduler_port
    8786
    >>> parse_settings({"leese": 30})
    Traceback (most recent call last):
    gputui.errors.UsageError: setting gputui.leese: unknown; settings are lease, stage-timeout, \
idle-timeout, head-cpus, busy, scheduler.host, scheduler.port, ssh.config, \
ssh.remote-gputui, runs.kept, notify, transfers, \
device-memory-limit, rmm-pool-size, rmm-async
    """
    values: dict[str, Any] = {}
    problems = []
    for key, value in _flat(tree).items():
        if key in WORKER_KEYS:
            allowed, fits = WORKER_KEYS[key]
            if not fits(value):
                problems.append(f"setting gputui.{key}: {value!r} is not {allowed}")
            continue
        if key not in KEYS:
            known = ", ".join((*KEYS, *WORKER_KEYS))
            problems.append(f"setting gputui.{key}: unknown; settings are {known}")
            continue
        field, kind = KEYS[key]
        allowed, fits = BOUNDS.get(field, (kind.__name__, lambda value: True))
        try:
            values[field] = None if value is None else kind(value)
            rounded = kind is int and values[field] != value and not isinstance(value, str)
            no_text = kind is str and isinstance(value, int | float | list | tuple | Mapping)
            if isinstance(value, bool) or rounded or no_text or not fits(values[field]):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            problems.append(f"setting gputui.{key}: {value!r} is not {allowed}")
    if problems:
        raise UsageError("\n".join(problems))
    return Settings(**values)


def _is_limit(value: Any) -> bool:
    from dask.utils import parse_bytes

    try:
        return value is None or parse_bytes(value) >= 1 or 0 < float(value) <= 1
    except (TypeError, ValueError, OverflowError, AttributeError):  # of Dask, for no text or number
        return False


def _flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return `{"a": {"b_c": 1}}` as `{"a.b-c": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = before + str(key).replace("_", "-")
        flat |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
