"""A preset and its parameters → progress → a `RunResult`, on the workers of a Dask client.

`execute` is called by `--run` and by Python; it blocks, and builds and sends graphs in the
calling thread, off every event loop. It finds out what the workers are and have, says what is
missing or too large before anything starts, and turns every way in which a run can fail into
one error that says what to change.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from importlib.util import find_spec
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from gputui.errors import RunError
from gputui.model.plain_text import many
from gputui.presets import Figure, Machine, Memory, Outcome, ParsedParameters, Preset, Value, parse
from gputui.presets.definition import plain
from gputui.presets.job import Job, RunProgress, RunWorker, explained, sized
from gputui.presets.workers import (
    ask,
    choose,
    has_gpu,
    known_workers,
    refuse_unfit,
    versions,
)
from gputui.runs.output import drawn
from gputui.runs.records import RunRecord
from gputui.runs.text import brief, text, usage_facts

if TYPE_CHECKING:
    import distributed


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """A run's result; holds its arrays on the workers as long as it lives."""

    preset: str
    parameters: Mapping[str, Value]
    backend: str
    workers: tuple[RunWorker, ...]
    elapsed_s: float
    result: Mapping[str, Any]
    units: Mapping[str, str]
    figure: Figure | None
    versions: Mapping[str, str]
    """Of the libraries on the workers; "a, b" where they differ."""
    arrays: Mapping[str, Any] = field(default_factory=dict)
    """Dask or NumPy arrays by name."""
    placement: Mapping[str, Any] = field(default_factory=dict)
    """Where tasks on them may run: keywords of `Client.compute`."""
    record: RunRecord | None = None
    """Of a run that was recorded; `gputui runs show` prints it."""

    @property
    def heading(self) -> str:
        """What was computed, where, and how long it took."""
        where = many(len(self.workers), "worker")
        return f"{self.preset} on {where} ({self.backend}): {self.elapsed_s:.2f} s"

    def _repr_html_(self) -> str:
        """Show the result and its figure in a notebook."""
        parts = [
            f"<b>{escape(self.heading)}</b>",
            f"<pre>{escape(text(self.result, self.units))}</pre>",
        ]
        if self.figure and find_spec("matplotlib"):
            data = base64.b64encode(drawn(self.figure, "png")).decode()
            parts.append(f'<img width="600" src="data:image/png;base64,{data}">')
        if self.record:
            facts = usage_facts(self.record.usage)
            taken = "".join(f"; {name}: {escape(fact)}" for name, fact in facts.items())
            parts.append(f"<code>gputui runs show {escape(self.record.id)}</code>{taken}")
        return "<br>".join(parts)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        said = brief(self.result, self.units)
        return f"<RunResult {self.preset}({given}): {said}, {self.elapsed_s:.2f} s>"


def execute(
    client: distributed.Client,
    preset: Preset,
    parameters: Mapping[str, object] | ParsedParameters,
    *,
    backend: str = "auto",
    workers: Collection[str] | None = None,
    report: Callable[[RunProgress], None] = lambda progress: None,
    cancel: Event | None = None,
    keep_arrays: bool = False,
) -> RunResult:
    """Run a preset and return its result.

    `client` is a synchronous one. `parameters` are the given ones, as texts,
    as values or parsed; the others get the backend's defaults. `workers` are names, None
    for all that fit the backend. Setting `cancel` from another thread, like Ctrl-C in this one,
    cancels the tasks.

    Raises:
        PresetError: parameters are wrong or do not go together.
        ClusterError: no worker fits, or a GPU or a library is missing on one.
        RunError: the computation failed; RunCancelledError where it was cancelled.
    """
    with explained(preset.name):
        known = known_workers(client)
    backend, chosen = choose(known, backend, workers)
    job = Job(
        client=client,
        backend=backend,
        workers=(),
        parameters=parse(preset, parameters).complete(backend),
        resources={"GPU": 1} if backend == "cupy" and any(map(has_gpu, chosen.values())) else {},
        restricted=len(chosen) < len(known),
        report=report,
        cancel=cancel or Event(),
        keep_arrays=keep_arrays,
    )
    with explained(preset.name):
        if preset.folder:
            from gputui.runs.modules import send_modules

            send_modules(client, preset.folder)
        found = ask(preset, job, chosen)
    refuse_unfit(preset, found)
    return _run(preset, replace(job, workers=found))


def _run(preset: Preset, job: Job) -> RunResult:
    """Compute, and check the outcome."""
    memory, room = _memory(preset, job, job.machine), job.machine.smallest_bytes
    if memory.peak_bytes > room:
        where = "device" if job.backend == "cupy" else "worker's share of memory"
        raise RunError(
            f"{preset.name} would take {sized(memory.peak_bytes)} on each worker, and the "
            f"smallest {where} has {sized(room)} to give",
            hint=memory.change,
        )
    started = time.perf_counter()
    half = replace(job.machine, smallest_bytes=memory.peak_bytes // 2)
    with (
        explained(preset.name, lambda: _memory(preset, job, half).change, folder=preset.folder),
        _found_by_dask(job.client),
    ):
        outcome = preset.compute(job)
    if not isinstance(outcome, Outcome) or not isinstance(outcome.result, Mapping):
        made = outcome.result if isinstance(outcome, Outcome) else outcome
        raise RunError(
            f"{preset.name} returned a {type(made).__name__}; compute returns Outcome({{…}}), "
            "with a dict of what --json prints"
        )
    result = plain(outcome.result, f"{preset.name}: result")
    if job.keep_arrays and (lacking := sorted({*preset.arrays} - {*outcome.arrays})):
        raise RunError(
            f"{preset.name} declares arrays=… and returned no {', '.join(lacking)}",
            hint=f"write Outcome(…, arrays={{{lacking[0]!r}: …}}), or take it out of Preset.arrays",
        )
    return RunResult(
        preset=preset.name,
        parameters=job.parameters,
        backend=job.backend,
        workers=job.workers,
        elapsed_s=time.perf_counter() - started,
        result=result,
        units=preset.units,
        figure=outcome.figure,
        versions=versions(job.workers),
        arrays=outcome.arrays,
        placement=job.placement(),
    )


@contextlib.contextmanager
def _found_by_dask(client: distributed.Client) -> Iterator[None]:
    """Have `x.compute()`, `dask.persist` and `Client()` of a preset run on the cluster.

    Dask's settings are the whole process's, so that runs of one process take turns.
    """
    import dask

    settings = {
        "scheduler": "dask.distributed",
        "scheduler-address": client.scheduler.address,
        "distributed.client.security-loader": "gputui.runs.execution.security_of",
    }
    with _turn, client.as_current(), dask.config.set(settings):
        _loaded[client.scheduler.address] = client.security
        try:
            yield
        finally:
            del _loaded[client.scheduler.address]


_turn = Lock()
_loaded: dict[str, Any] = {}
"""The TLS of the cluster that a preset runs on now, by address."""


def security_of(info: Mapping[str, Any]) -> Any:
    """Return the TLS for a scheduler's address, as Dask asks for it; None is no run's cluster."""
    return _loaded.get(info["address"])


def _memory(preset: Preset, job: Job, machine: Machine) -> Memory:
    """Call a preset's own estimate, if it has one; raises RunError that names its line."""
    if preset.estimate is None:
        return Memory(0)
    with explained(f"the estimate of {preset.name}", folder=preset.folder):
        memory = preset.estimate(job.parameters, machine)
    if not isinstance(memory, Memory):
        raise RunError(
            f"the estimate of {preset.name} returned {memory!r}",
            hint="write return Memory(peak_bytes, change)",
        )
    return memory
