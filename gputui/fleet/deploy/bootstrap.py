"""Make hosts ready: an environment of their own there with exactly the versions of this one.

It is in ~/.local/share/gputui/env, where a host without python= is looked at after this
interpreter's path; nothing else on a host is changed.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gputui.errors import GputuiError, HostError, UsageError
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.start_agent import AgentOpener, starting_python
from gputui.fleet.session import AgentChannel
from gputui.fleet.stages import Ask, FleetSettings, Stages, installed_here
from gputui.model.frozen import frozen
from gputui.model.hosts import Host
from gputui.model.plain_text import many

BOUND_S = 1800.0
"""CuPy with the CUDA libraries is 2 GB to fetch."""

PREPARING = "preparing"
"""The stage of a host that is made ready."""
NEEDED = ("dask", "distributed", "numpy")
USED_BY_TASKS = ("pandas", "pyarrow", "scipy", "scikit-learn")
"""Installed where this environment has them: presets' tasks import them on the workers."""

Report = dict[str, str]
Tell = Callable[[str, str], None]
"""Takes a host's name and a line of progress."""


@frozen
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
    builds: bool = False
    """Whether packages without a wheel may be built there, which runs their build scripts."""


NOTHING_SPECIAL = PackageSource()


def read_source(
    lock: Path | None,
    wheels: Path | None,
    index: str,
    host_settings: bool,
    builds: bool = False,
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
        pinned, here = re.search(rf"^{name}==([^\s;\\]+)", text, re.M), installed_here().get(name)
        if not pinned or pinned[1] != here:
            there = f"{name} {pinned[1]}" if pinned else f"no {name}"
            raise UsageError(f"{lock}: {there}, but {here} is used here")
    return PackageSource(text, found, index, host_settings, builds)


def describe(
    hosts: Sequence[Host], settings: FleetSettings, source: PackageSource = NOTHING_SPECIAL
) -> str:
    """Describe what `bootstrap` is about to do."""
    names = ", ".join(host.name for host in hosts)
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
        return f"{many(len(source.wheels), 'wheel')} of {source.wheels[0].parent}, sent from here"
    index = re.sub(r"//[^@/]*@", "//", source.index) or "PyPI"
    return f"{index}, by the hosts' own pip.conf" if source.host_settings else index


def pins() -> tuple[str, ...]:
    """Return the packages to install, each with the version that is installed here."""
    pinned = ((name, installed_here().get(name)) for name in (*NEEDED, *USED_BY_TASKS))
    return tuple(f"{name}=={there}" for name, there in pinned if there)


def cupy_version() -> str:
    """Return the version of the CuPy that is installed here; "" without one."""
    here = installed_here().items()
    return next((version for name, version in here if name.startswith("cupy-cuda")), "")


async def bootstrap(
    hosts: Iterable[Host],
    settings: FleetSettings,
    *,
    tell: Tell,
    ask: Ask,
    source: PackageSource = NOTHING_SPECIAL,
) -> tuple[str | HostError, ...]:
    """Make every host ready, all at once; return each one's interpreter, or why it has none."""
    opener = AgentOpener(settings)

    async def prepare(host: Host) -> str | HostError:
        stages = Stages(host.name, settings.stage_timeout_s, ask=ask)
        try:
            async with asyncio.timeout(BOUND_S):
                connection = await opener.connect(host, stages)
                channel = AgentChannel(await connection.run(remote.COMMAND))
                try:
                    channel.stream.write(await asyncio.to_thread(_order, host, settings, source))
                    async with starting_python(host, stages):
                        first = await _next_report(channel)
                    return await _follow(host, channel, first, tell, source)
                finally:
                    await asyncio.shield(channel.close())
        except HostError as error:
            return error
        except TimeoutError:
            reason = f"it was not ready after {BOUND_S / 60:.0f} minutes"
        except (OSError, GputuiError) as error:
            reason = f"its connection failed: {error}"
        return HostError(host.name, PREPARING, reason)

    try:
        return tuple(await asyncio.gather(*map(prepare, hosts)))
    finally:
        await opener.close()


def _order(host: Host, settings: FleetSettings, source: PackageSource) -> bytes:
    """Return the first input of the command on a host: the script and its order."""
    version = settings.versions.python
    return remote.first_lines(
        [f"python{version}", "python3"],
        remote.script("preparing.py"),
        {
            "version": version,
            "environment": remote.BOOTSTRAP_ENVIRONMENT,
            "packages": pins(),
            "gpus": host.gpus != (),
            "cupy": cupy_version(),
            "lock": source.lock,
            "index": source.index,
            "host_settings": source.host_settings,
            "builds": source.builds,
            "wheels": [*map(_described, source.wheels)],
        },
        setup=host.setup,
    )


def _described(wheel: Path) -> dict[str, object]:
    """Return a wheel's name, size and hash, by which a host accepts it."""
    data = wheel.read_bytes()
    return {"name": wheel.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


async def _follow(
    host: Host, channel: AgentChannel, report: Report, tell: Tell, source: PackageSource
) -> str:
    """Follow the script's reports from this one on, and return the interpreter that is ready.

    Raises HostError.
    """
    while report:
        match report:
            case {"line": text}:
                tell(host.name, text)
            case {"send": "wheels"}:
                for wheel in source.wheels:
                    channel.stream.write(await asyncio.to_thread(wheel.read_bytes))
                    await channel.stream.drain()
            case {"done": python}:
                return python
            case {"failed": reason, "hint": hint}:
                raise HostError(host.name, PREPARING, reason, hint=hint)
        report = await _next_report(channel)
    reason, hint = "; ".join(("it ended early", *channel.stream.stderr_tail)), ""
    if await channel.stream.exit_status() == remote.NO_PYTHON:
        reason, hint = "no Python 3 there", "install Python there"
    raise HostError(host.name, PREPARING, reason, hint=hint)


async def _next_report(channel: AgentChannel) -> Report:
    """Return the next report; {} at the end."""
    while (line := await channel.read_line()) is not None:
        if report := _report(line):
            return report
    return {}


def _report(line: bytes) -> Report:
    """Return the report in a line of the script; {} for any other line, as of a login shell.

    >>> _report(b'{"done": "/env/bin/python"}'), _report(b'{"done": [1]}'), _report(b"[" * 9999)
    ({'done': '/env/bin/python'}, {}, {})
    """
    with contextlib.suppress(ValueError, RecursionError):
        report = json.loads(line)
        if isinstance(report, dict) and all(isinstance(text, str) for text in report.values()):
            return report
    return {}
