"""What simulated workers print: greetings, progress, warnings, tracebacks, stray control codes."""

import random
from collections.abc import Iterable

from gputui.demo.devices import Worker
from gputui.demo.event_log import EventLog

LINES_A_SECOND = 12
"""At most, from all workers together."""


def greeting(worker: Worker) -> tuple[str, ...]:
    """Return what a worker prints when it has registered."""
    return (
        f"distributed.worker - INFO -       Start worker at: {worker.address}",
        f"distributed.worker - INFO -          Worker name: {worker.name}",
        f"distributed.worker - INFO -               Memory: {worker.memory_limit_bytes >> 30} GiB",
        f"gputui.worker - INFO - CUDA context on {worker.gpu.uuid}",
    )


def task_failure(prefix: str) -> tuple[str, ...]:
    """Return what a worker prints when a task raises."""
    return (
        "distributed.worker - ERROR - Compute Failed",
        f"Key:       ('{prefix}-7c1e', 41, 0)",
        "Exception: \"OutOfMemoryError('out of memory allocating 8,589,934,592 bytes')\"",
    )


def last_log_lines(worker: Worker) -> tuple[str, ...]:
    """Return what a worker prints before it is killed."""
    return (
        "distributed.worker.memory - WARNING - Unmanaged memory use is high. This may indicate"
        " a memory leak or the memory may not be released to the OS",
        f"distributed.worker.memory - WARNING - Worker is at 97% memory usage. {worker.name}",
        "Killed",
    )


def chat(workers: Iterable[Worker], rng: random.Random, event_log: EventLog, at: float) -> None:
    """Let some of the busy workers print a line or two."""
    busy = [worker for worker in workers if worker.run is not None]
    for number in range(min(LINES_A_SECOND, len(busy) // 2 + 1) if busy else 0):
        worker = rng.choice(busy)
        moment = at - 1 + (number + rng.random()) / LINES_A_SECOND
        event_log.log(moment, worker.name, _lines(worker, rng))


def _lines(worker: Worker, rng: random.Random) -> tuple[str, ...]:
    run = worker.run
    assert run is not None
    prefix = run.counts[worker.stage].stage.prefix
    dice = rng.random()
    if dice < 0.04:
        return (
            f"distributed.core - INFO - Event loop was unresponsive in Worker for"
            f" {rng.uniform(3, 6):.2f}s",
        )
    if dice < 0.06:
        return (
            "distributed.worker.memory - WARNING - gc.collect() took"
            f" {rng.uniform(1, 2):.3f}s. This is usually a sign of large objects",
        )
    if dice < 0.10:
        return (f"\x1b[32m[{prefix}]\x1b[0m chunk done",)
    if prefix == "train_step":
        step = run.counts[worker.stage].finished
        loss = 0.2 + 2.1 / (1 + step / 400) + rng.random() * 0.02
        return (f"step {step:>6}  loss {loss:.4f}  {rng.uniform(310, 340):.0f} samples/s",)
    seconds = rng.uniform(0.7, 1.3) * run.counts[worker.stage].stage.task_s
    return (f"{prefix}: block ({rng.randrange(500)}, 0) in {seconds:.2f} s",)
