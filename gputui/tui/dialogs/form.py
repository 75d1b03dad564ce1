"""A preset and typed texts → values, mistakes, the memory it needs, its command. Pure: the form is
redrawn from this with every key, and the head gets the texts. Unchanged values are not sent, so
that the backend's own defaults hold where it runs.
"""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from gputui.errors import PresetError
from gputui.model.snapshot import Snapshot
from gputui.presets import Machine, Memory, Parameter, ParsedParameters, Preset, Value, get, parse
from gputui.runs.records import is_script

DEVICE_SHARE = 0.9
"""Share of a device's memory that a task may take next to the CUDA context."""


@dataclass(frozen=True)
class Form:
    """A preset's parameters as texts, on the way to a run."""

    preset: Preset
    machine: Machine | None
    """The workers it would run on; None while the cluster has no workers."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Typed texts by parameter; untouched ones are absent."""

    @property
    def backend(self) -> str:
        """The backend that `auto` comes to on these workers."""
        return self.machine.backend if self.machine else "cupy"

    def default_text(self, parameter: Parameter) -> str:
        """Return a parameter's default as a person would type it."""
        return written(parameter.default_for(self.backend))

    def typed(self, name: str, text: str) -> "Form":
        """Return the form with this text; a default that is typed out again is no change."""
        texts = {key: value for key, value in self.texts.items() if key != name}
        parameter = self.preset.parameter(name)
        if text.strip() not in ("", self.default_text(parameter)):
            texts[name] = text.strip()
        return replace(self, texts=texts)

    @cached_property
    def parsed(self) -> ParsedParameters:
        """The parsed texts."""
        return parse(self.preset, self.texts)

    def mistakes(self) -> dict[str, str]:
        """Return the mistakes, by parameter; under "", that of parameters together."""
        try:
            self.parsed.complete(self.backend)
        except PresetError as error:
            return dict(self.parsed.mistakes) or {"": str(error)}
        return {}

    def memory(self) -> Memory | None:
        """Estimate the memory of the run on these workers; None where that cannot be said."""
        if self.preset.estimate is None or self.machine is None or self.mistakes():
            return None
        return self.preset.estimate(self.parsed.complete(self.backend), self.machine)

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Return the parameters to send, in the preset's order."""
        names = [parameter.name for parameter in self.preset.parameters]
        return tuple((name, self.texts[name]) for name in names if name in self.texts)


def written(value: Value) -> str:
    """Return a value as `-p` takes it.

    >>> written(None), written(True), written(1e-06), written(500000)
    ('auto', 'true', '1e-06', '500000')
    """
    if value is None:
        return "auto"
    return str(value).lower() if isinstance(value, bool) else str(value)


def defaults(
    preset: str, given: tuple[tuple[str, str], ...], backend: str
) -> list[tuple[str, str]]:
    """Return the parameters of a preset that were not given; nothing for one that is not known.

    >>> defaults("svd", (("rows", "20000"),), "numpy")[0], defaults("no-such", (), "numpy")
    (('cols', '1000'), [])
    """
    known = dict(given)
    try:
        parameters = () if is_script(preset) else get(preset).parameters
    except (PresetError, ImportError):
        return []
    return [(p.name, written(p.default_for(backend))) for p in parameters if p.name not in known]


def headless_command(
    cluster: str, preset: str, parameters: tuple[tuple[str, str], ...], backend: str = "auto"
) -> str:
    """Return the command that runs the same on the same cluster without a screen.

    >>> headless_command("lab", "svd", (("rows", "1000000"),))
    'gputui --attach lab --run svd -p rows=1000000'
    >>> headless_command("lab", "/home/me/train.py", (("arguments", "20 'a b'"),))
    "gputui --attach lab --run /home/me/train.py -- 20 'a b'"
    """
    words = ["gputui", "--attach", cluster, "--run", preset]
    if is_script(preset):
        arguments = dict(parameters).get("arguments", "")
        return f"{shlex.join(words)} -- {arguments}" if arguments else shlex.join(words)
    for name, text in parameters:
        words += ["-p", f"{name}={text}"]
    if backend != "auto":
        words += ["--backend", backend]
    return shlex.join(words)


def machine_of(snapshot: Snapshot | None) -> Machine | None:
    """Describe the workers that are up, for an estimate of memory."""
    if snapshot is None:
        return None
    up = [worker for worker in snapshot.workers if worker.state.up]
    on_gpus = [worker for worker in up if worker.device_uuid]
    chosen = on_gpus or up
    if not chosen:
        return None
    sharing = Counter(worker.device_uuid for worker in on_gpus)
    rooms = [
        device.memory_total_bytes * DEVICE_SHARE / sharing[device.uuid]
        for host in snapshot.hosts
        for device in host.devices
        if device.memory_total_bytes and sharing[device.uuid]
    ] or [worker.memory_limit_bytes / worker.nthreads for worker in up if worker.memory_limit_bytes]
    return Machine(
        backend="cupy" if on_gpus else "numpy",
        workers=len(chosen),
        threads=sum(worker.nthreads for worker in chosen),
        smallest_bytes=int(min(rooms, default=0)),
    )
