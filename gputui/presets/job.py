"""A running preset's job: the workers it may use, and how to give them work.

Everything goes through `submit`, `each_worker` and `compute`, so that a preset need not think of
which workers have a GPU, of progress, of Ctrl-C, or of a worker that is lost on the way: its
tasks run again elsewhere. The process that holds a `Job` needs no CuPy; only workers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from gputui.errors import GputuiError, RunError
from gputui.model.frozen import frozen

if TYPE_CHECKING:
    import distributed

POLL_S = 0.1  # how soon a wait is cancelled, and how often it reports
BUSY_THREADS = 32  # with tasks of half a second, these take a tenth of the scheduler's time
MOST_TASKS = 10_000  # that one computation is cut into by itself
SMALLER = "use smaller chunks (chunk_rows), a smaller size, or more workers"
# Dask's errors for tasks that its scheduler no longer has:
LOST = ("CommClosedError", "FutureCancelledError", "FuturesCancelledError", "CancelledError")

Value = int | float | str | bool | None  # of a parameter; None is written `auto`


class RunCancelledError(RunError):
    """The run was cancelled from another thread or frontend."""


@frozen
class RunProgress:
    """A run's progress: its stage in a word or two; `total` is 0 as long as it is not known."""

    stage: str
    done: int
    total: int


@frozen
class RunWorker:
    """One worker of a run, as it describes itself.

    `device` is `0` for a GPU, `0.2` for a MIG instance, None on a CPU. `memory_bytes` is what one
    task may take: device memory on a GPU, else its share of the worker's limit. `no_gpu` is why
    there is no GPU where one is needed, `missing` the needed modules that are not installed.
    """

    name: str
    address: str
    host: str
    device: str | None
    uuid: str | None
    nthreads: int
    memory_bytes: int
    no_gpu: str = ""
    missing: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@frozen
class Machine:
    """The workers, as an estimate of memory needs them.

    `threads` are those of all workers together, `smallest_bytes` is what one task may take on the
    smallest device, or in the smallest worker's memory. `keeps_arrays` is whether the arrays of
    the outcome stay on the workers, to be saved.
    """

    backend: str
    workers: int
    threads: int
    smallest_bytes: int
    keeps_arrays: bool = False

    def tasks(self, steps: int, most: int) -> int:
        """Return how many tasks to make of so many steps: few, and none that lasts.

        Four a thread keep all of them busy to the end; a long run takes more, so that it is seen
        to go on. `most` is how many steps a thread does in about half a second; where there are
        more threads than `BUSY_THREADS` the scheduler would have too much to do with that.

        >>> Machine("numpy", 2, 2, 0).tasks(steps=100, most=50)
        8
        >>> Machine("numpy", 2, 2, 0).tasks(steps=3_000, most=50)
        60
        """
        length = most * max(1, self.threads // BUSY_THREADS)
        return max(4 * self.threads, min(steps // length, MOST_TASKS))


@frozen
class Job:
    """A run as its preset sees it.

    `backend` is cupy or numpy: where arrays live. `resources` are those of each task, `{"GPU": 1}`
    if workers offer it; `restricted` is whether the cluster has workers that this run may not use.
    `keep_arrays` is whether the caller wants the arrays of the outcome, to save them.
    """

    client: distributed.Client
    backend: str
    workers: tuple[RunWorker, ...]
    parameters: Mapping[str, Value]
    resources: Mapping[str, float]
    restricted: bool
    report: Callable[[RunProgress], None]
    cancel: threading.Event
    keep_arrays: bool = False

    def __getitem__(self, name: str) -> Any:
        """Return a parameter's value: `job["rows"]`."""
        return self.parameters[name]

    @property
    def machine(self) -> Machine:
        """The workers in numbers."""
        return Machine(
            backend=self.backend,
            workers=len(self.workers),
            threads=sum(each.nthreads for each in self.workers),
            smallest_bytes=min(each.memory_bytes for each in self.workers),
            keeps_arrays=self.keep_arrays,
        )

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start one task on whichever worker is free and return its future."""
        return self.client.submit(function, *arguments, key=_token(function), **self.placement())

    def map(self, function: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
        """Start one task for each row of the columns, as the built-in `map` would."""
        lists = [list(column) for column in columns]
        token = _token(function)
        keys = [(token, index) for index, _ in enumerate(zip(*lists, strict=True))]
        return list(self.client.map(function, *lists, key=keys, **self.placement()))

    def results(self, futures: Sequence[Any], stage: str = "computing") -> list[Any]:
        """Wait for futures and return their results, in this process."""
        self.wait(futures, stage)
        return list(self.client.gather(list(futures)))

    def each_worker(
        self, function: Callable[..., Any], *arguments: Any, stage: str = "computing"
    ) -> list[Any]:
        """Run a function once on every worker and return the results in the workers' order.

        If a worker is lost, another one runs its task.
        """
        return self.results([self.on(each, function, *arguments) for each in self.workers], stage)

    def on(self, worker: RunWorker, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start one task on this worker, or on another one should this one be lost."""
        from gputui.presets.restrictions import while_worker_lives

        placed = self._placed([worker]) | {"allow_other_workers": False}  # or an idle one steals it
        with while_worker_lives():
            return self.client.submit(function, *arguments, key=_token(function), **placed)

    def compute(self, collection: Any, stage: str = "computing") -> Any:
        """Compute a Dask collection on the workers and return its value here."""
        return self.results([self.client.compute(collection, **self.placement())], stage)[0]

    def persist(self, collection: Any, stage: str = "computing") -> Any:
        """Compute a Dask collection and leave it on the workers; return the collection of it."""
        from distributed import futures_of

        kept = self.client.persist(collection, **self.placement())
        self.wait(futures_of(kept), stage)
        return kept

    def wait(self, futures: Sequence[Any], stage: str = "computing") -> None:
        """Wait until all futures have ended well, reporting progress.

        Raises:
            RunError: the cluster has lost the tasks.
            RunCancelledError: the run was cancelled.
            Exception: what the first failed task raised.
        """
        ended: SimpleQueue[Any] = SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        done, reported_at = 0, 0.0
        try:
            while done < len(futures):
                if self.cancel.is_set():
                    raise RunCancelledError("cancelled")
                if time.monotonic() - reported_at > POLL_S:
                    self.report(RunProgress(stage, done, len(futures)))
                    reported_at = time.monotonic()
                try:
                    future = ended.get(timeout=POLL_S)
                except Empty:
                    continue
                self._raise_if_failed(future)
                done += 1
        except BaseException:
            # Not `client.cancel`: the scheduler (2026.8) asserts that a client wants each task
            # that depends on a cancelled one, and ends the client's connection where none does.
            for future in futures:
                future.release()
            raise
        self.report(RunProgress(stage, done, len(futures)))

    def _raise_if_failed(self, future: Any) -> None:
        if future.status == "finished":
            return
        if future.status != "error":
            raise RunError(f"the cluster dropped task {future.key} ({future.status})", lost=True)
        error = future.exception()  # `result` would end the client's loop with a BaseException
        failed_on: list[str] = []
        with contextlib.suppress(OSError):
            failed_on = self.client.run_on_scheduler(_failed_on, future.key)
        with contextlib.suppress(AttributeError):  # some errors have no attributes
            error.failed_on = next((w for w in self.workers if w.address in failed_on), None)
        raise error.with_traceback(future.traceback())

    def placement(self) -> dict[str, Any]:
        """Return where tasks may run: on this run's workers, by resource where they have one."""
        return self._placed(self.workers if self.restricted else ())

    def _placed(self, workers: Sequence[RunWorker]) -> dict[str, Any]:
        placed: dict[str, Any] = {"resources": dict(self.resources)} if self.resources else {}
        if workers:
            placed["workers"] = [each.address for each in workers]
            placed["allow_other_workers"] = True
        return placed


def _failed_on(key: Any, dask_scheduler: Any) -> list[str]:
    """Return the addresses of the workers that a task failed on, or the one it depends on."""
    task = dask_scheduler.tasks.get(key)
    return sorted((task.exception_blame or task).erred_on or ()) if task else []


def _token(function: Callable[..., Any]) -> str:
    """Return the start of new keys; the scheduler groups tasks by it."""
    from dask.utils import funcname

    return f"{funcname(function).strip('_')}-{uuid4().hex}"


@contextlib.contextmanager
def explained(
    what: str, smaller: Callable[[], str] = lambda: SMALLER, *, folder: str = ""
) -> Iterator[None]:
    """Turn any failure of a computation into RunError; gputui's own pass, and a person's Ctrl-C.

    `smaller` returns the hint for when a device or a worker ran out of memory. Where the code lies
    in `folder`, the error says in which of its lines it was raised.
    """
    try:
        yield
    except GputuiError:
        raise
    except BaseException as error:
        signalled = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and signalled:
            raise
        raise _explanation(what, error, smaller, folder) from error


def _explanation(what: str, error: Any, smaller: Callable[[], str], folder: str) -> RunError:
    """Return the error with what to change."""
    name = type(error).__name__
    said = (str(error).strip() or name).splitlines()[0]
    worker: RunWorker | None = getattr(error, "failed_on", None)
    worker_name = worker.name if worker else ""
    if isinstance(error, MemoryError) or "out of memory" in said.lower():
        room = f", where a task may take {sized(worker.memory_bytes)}" if worker else ""
        message = f"{what} ran out of memory on {worker_name or 'a worker'}{room}: {said}"
        return RunError(message, hint=smaller() or SMALLER, worker=worker_name)
    if name == "KilledWorker":
        last = str(getattr(error.last_worker, "name", error.last_worker))
        message = (
            f"{what} lost {error.allowed_failures + 1} workers one after another, each at the same "
            f"task, {error.task}; the last one was {last}"
        )
        hint = f"where memory ran out, {smaller() or SMALLER}"
        return RunError(message, hint=hint, worker=last, killed=True)
    if name in LOST and not isinstance(error, asyncio.CancelledError):
        hint = "the scheduler or all its workers are gone"
        return RunError(f"{what} lost its tasks: {said}", hint=hint, lost=True)
    return RunError(f"{what} failed: {name}: {said}{_line_in(folder, error)}", worker=worker_name)


def _line_in(folder: str, error: BaseException) -> str:
    """Return the last line in a folder, or below, that an error came through; "" without one."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames if folder else ()):
        if Path(frame.filename).is_relative_to(folder):
            return f" ({Path(frame.filename).name}:{frame.lineno}, in {frame.name})"
    return ""


def sized(size_bytes: float) -> str:
    """Return a size with its unit.

    >>> sized(12_025_908_428), sized(2_000_000)
    ('11.2 GiB', '1.9 MiB')
    """
    if size_bytes >= 2**29:
        return f"{size_bytes / 2**30:,.1f} GiB"
    return f"{size_bytes / 2**20:,.1f} MiB"


def array_module(backend: str) -> Any:
    """Return the module of this backend, numpy or cupy."""
    return importlib.import_module(backend)


def finish(backend: str) -> None:
    """Wait until this worker's device has finished its queued work."""
    if backend == "cupy":
        array_module(backend).cuda.Device().synchronize()


def module_of(array: Any) -> Any:
    """Return the module that an array is of."""
    return array_module("cupy" if hasattr(array, "get") else "numpy")


def to_host(array: Any) -> Any:
    """Return an array, or a number of either library, in host memory."""
    return array.get() if hasattr(array, "get") else array
