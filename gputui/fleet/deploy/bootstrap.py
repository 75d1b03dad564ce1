"""Make hosts ready: an environment of their own there with exactly the versions of this one.

It is in ~/.local/share/gputui/env, where a host without python= is looked at after this
interpreter's path; nothing else on a host is changed.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import HostError, UsageError
from gputui.fleet.agent_channel import AgentChannel
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.opening import AgentOpener
from gputui.fleet.fleet_settings import FleetSettings, installed_here
from gputui.fleet.stages import Ask, Stages
from gputui.model.hosts import Host

BOUND_S = 1800.0
"""CuPy with the CUDA libraries is 2 GB to fetch."""

NEEDED = ("dask", "distributed", "numpy")
USED_BY_TASKS = ("pandas", "pyarrow", "scipy", "scikit-learn")
"""Installed where this environment has them: presets' tasks import them on the workers."""

Tell = Callable[[str, str], None]
"""Takes a host's name and a line of progress."""


@dataclass(frozen=True, slots=True)
class BootstrapOutcome:
    """How `bootstrap` ended on one host."""

    host: str
    python: str = ""
    """The interpreter that is ready there; "" if it failed."""
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PackageSource:
    """The source of the packages."""

    lock: str = ""
    """The text of a requirements file with a hash for each; "" for the versions used here."""
    wheels: tuple[Path, ...] = ()
    """Wheels of this machine, which are sent; () for an index."""
    index: str = ""
    """The index's URL; "" for pip's own."""
    host_settings: bool = False
    """Whether a host's own pip.conf and PIP_ variables count."""


NOTHING_SPECIAL = PackageSource()


def read_source(
    lock: Path | None, wheels: Path | None, index: str, host_settings: bool
) -> PackageSource:
    """Return a source, its files read; raises UsageError for what cannot be used."""
    try:
        text = lock.read_text(encoding="utf-8") if lock else ""
        found = tuple(sorted(wheels.glob("*.whl"))) if wheels else ()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{lock}: {getattr(error, 'strerror', None) or error}") from error
    if wheels and not found:
        raise UsageError(f"{wheels}: no wheel (.whl) in this folder")
    for name in NEEDED[:2] if text else ():
        pinned = re.search(rf"^{name}==([^\s;\\]+)", text, re.MULTILINE)
        if not pinned or pinned[1] != installed_here().get(name):
            there = f"{name} {pinned[1]}" if pinned else f"no {name}"
            raise UsageError(f"{lock}: {there}, but {installed_here().get(name)} is used here")
    return PackageSource(text, found, index, host_settings)


def describe(
    hosts: Iterable[Host], settings: FleetSettings, source: PackageSource = NOTHING_SPECIAL
) -> str:
    """Describe what `bootstrap` is about to do."""
    hosts = tuple(hosts)
    names = ", ".join(host.name for host in hosts if not host.is_local) or "no host"
    lines = [
        f"On {names}: make {remote.BOOTSTRAP_ENVIRONMENT} with Python {settings.versions.python},",
        "and install what the lock file names, checked by its hashes."
        if source.lock
        else f"and install {' '.join(pins())} there, and CuPy where there is an NVIDIA driver.",
        f"Packages come from {_origin(source)}.",
        "Nothing else on the hosts is changed.",
    ]
    for host in hosts:
        if host.python:
            lines.append(f"{host.name} has python={host.python}: take that out to use the new one.")
    return "\n".join(lines)


def _origin(source: PackageSource) -> str:
    if source.wheels:
        return f"{len(source.wheels)} wheels of {source.wheels[0].parent}, which are sent"
    index = re.sub(r"//[^@/]*@", "//", source.index) or "PyPI"
    return f"{index}, by the hosts' own pip.conf" if source.host_settings else index


def pins() -> tuple[str, ...]:
    """Return the packages to install, each with the version that is installed here."""
    pinned = ((name, installed_here().get(name)) for name in (*NEEDED, *USED_BY_TASKS))
    return tuple(f"{name}=={there}" for name, there in pinned if there)


def cupy_requirement() -> tuple[str, ...]:
    """Return the CuPy that is installed here, with its CUDA libraries; () without one."""
    found = (pair for pair in installed_here().items() if pair[0].startswith("cupy-cuda"))
    return tuple(f"{name}[ctk]=={version}" for name, version in found)


async def bootstrap(
    hosts: Iterable[Host],
    settings: FleetSettings,
    *,
    tell: Tell,
    ask: Ask,
    source: PackageSource = NOTHING_SPECIAL,
) -> tuple[BootstrapOutcome, ...]:
    """Make every host ready, all at once, and return how it went on each."""
    shared = AgentOpener(settings)
    try:
        return tuple(
            await asyncio.gather(
                *(_prepare(host, settings, shared, tell, ask, source) for host in hosts)
            )
        )
    finally:
        await shared.close()


async def _prepare(
    host: Host,
    settings: FleetSettings,
    shared: AgentOpener,
    tell: Tell,
    ask: Ask,
    source: PackageSource,
) -> BootstrapOutcome:
    """Make one host ready."""
    if host.is_local:
        return BootstrapOutcome(
            host.name, reason="this machine runs gputui itself: install with its pip"
        )
    stages = Stages(host.name, settings.stage_timeout_s, entered=lambda state, text: None, ask=ask)
    try:
        connection = await (await shared.connector()).connect(host, stages)
        async with asyncio.timeout(BOUND_S):
            channel = AgentChannel(await connection.run(remote.COMMAND))
            try:
                return await _follow(host, settings, channel, tell, source)
            finally:
                await asyncio.shield(channel.close())
    except HostError as error:
        return BootstrapOutcome(host.name, reason=error.reason, hint=error.hint)
    except OSError as error:
        return BootstrapOutcome(host.name, reason=f"its connection failed: {error}")
    except TimeoutError:
        return BootstrapOutcome(
            host.name, reason=f"it was not ready after {BOUND_S / 60:.0f} minutes"
        )


async def _follow(
    host: Host, settings: FleetSettings, channel: AgentChannel, tell: Tell, source: PackageSource
) -> BootstrapOutcome:
    """Send the script, and pass on its reports until its end."""
    wanted = settings.versions.python
    order = {
        "version": wanted,
        "environment": remote.BOOTSTRAP_ENVIRONMENT,
        "packages": pins(),
        "gpus": host.gpus != (),
        "cupy": _cupy_version(),
        "lock": source.lock,
        "index": source.index,
        "host_settings": source.host_settings,
        "wheels": await asyncio.to_thread(lambda: [*map(_described, source.wheels)]),
    }
    interpreters = [f"python{wanted}", "python3"]
    opening = remote.opening(
        interpreters,
        remote.script("preparing.py"),
        order,
        setup=host.setup,
        too_old=f"import sys; sys.exit('it is too old to make Python {wanted} ready')",
    )
    channel.stream.write(opening)
    while (line := await channel.read_line()) is not None:
        said = _parsed(line)
        if "line" in said:
            tell(host.name, said["line"])
        if "send" in said:
            await _send(source.wheels, channel)
        if "done" in said:
            return BootstrapOutcome(host.name, python=said["done"])
        if "failed" in said:
            return BootstrapOutcome(host.name, reason=said["failed"], hint=said["hint"])
    if await channel.stream.exit_status() == remote.NO_PYTHON:
        return BootstrapOutcome(
            host.name, reason="no Python 3 there", hint=f"install Python {wanted}"
        )
    return BootstrapOutcome(
        host.name, reason="; ".join(("it ended early", *channel.stream.stderr_tail))
    )


async def _send(wheels: Iterable[Path], channel: AgentChannel) -> None:
    """Send the wheels, one after the other, as fast as they are taken."""
    for wheel in wheels:
        channel.stream.write(await asyncio.to_thread(wheel.read_bytes))
        await channel.stream.drain()


def _described(wheel: Path) -> dict[str, object]:
    """Return a wheel's name, size and hash, by which a host accepts it."""
    data = wheel.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return {"name": wheel.name, "size": len(data), "sha256": digest}


def _parsed(line: bytes) -> dict[str, str]:
    """Return the report in a line of the script; {} for what a login shell printed."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _cupy_version() -> str:
    """Return the version of the CuPy that is installed here; "" without one."""
    return next(
        (there for name, there in installed_here().items() if name.startswith("cupy-cuda")), ""
    )
