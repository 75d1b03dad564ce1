"""The output of simulated workers: greetings, warnings, tracebacks, stray control codes."""

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputui.demo.simulated_agent import SimulatedWorker
    from gputui.demo.simulated_scheduler import Working
    from gputui.demo.work import StageCount

LINES_A_SECOND = 12
"""At most, from all workers together."""


def greeting(worker: "SimulatedWorker") -> tuple[str, ...]:
    """Return a worker's lines once it has registered."""
    return (
        f"distributed.worker - INFO -       Start worker at: {worker.address}",
        f"distributed.worker - INFO -          Worker name: {worker.name}",
        f"distributed.worker - INFO -               Memory: {worker.memory_limit_bytes >> 30} GiB",
        f"gputui.worker - INFO - CUDA context on {worker.seen_uuid}",
    )


def task_failure(prefix: str) -> tuple[str, ...]:
    """Return a worker's lines after a task raised."""
    return (
        "distributed.worker - ERROR - Compute Failed",
        f"Key:       ('{prefix}-7c1e', 41, 0)",
        "Exception: \"OutOfMemoryError('out of memory allocating 8,589,934,592 bytes')\"",
    )


def last_log_lines(worker: str) -> tuple[str, ...]:
    """Return a worker's lines before it is killed."""
    return (
        "distributed.worker.memory - WARNING - Unmanaged memory use is high. This may indicate"
        " a memory leak or the memory may not be released to the OS",
        f"distributed.worker.memory - WARNING - Worker is at 97% memory usage. {worker}",
        "Killed",
    )


def chat(workers: Iterable["Working"], rng: random.Random) -> None:
    """Let some of the busy workers print a line or two."""
    busy = [working for working in workers if working.run is not None]
    for _ in range(min(LINES_A_SECOND, len(busy) // 2 + 1) if busy else 0):
        working = rng.choice(busy)
        assert working.run is not None
        lines = _lines(working.run.counts[working.stage], rng)
        working.agent.print(working.worker.name, lines)


def _lines(count: "StageCount", rng: random.Random) -> tuple[str, ...]:
    prefix = count.stage.prefix
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
        loss = 0.2 + 2.1 / (1 + count.finished / 400) + rng.random() * 0.02
        samples = rng.uniform(310, 340)
        return (f"step {count.finished:>6}  loss {loss:.4f}  {samples:.0f} samples/s",)
    seconds = rng.uniform(0.7, 1.3) * count.stage.task_s
    return (f"{prefix}: block ({rng.randrange(500)}, 0) in {seconds:.2f} s",)
