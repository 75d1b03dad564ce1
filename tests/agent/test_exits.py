"""How a worker ended, told apart: by what is known of it, and by real processes."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from gputui.protocol.agent import WorkerExited, WorkerReady
from gputui.protocol.forking import WorkerEnding
from tests.agent.driving import Driver, client_of, how_it_ended

OF_TASK = "a task or a library ended it (os._exit)"
OOM = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000 bytes"
ADDRESS = "what():  CUDA error: an illegal memory access was encountered"
XID = "Xid 31, GPU memory page fault"

SIGTERM = "ended (SIGTERM) from outside gputui, by this user or root"
OUT_OF_MEMORY = "memory ran out ({}): the kernel ended it; give workers less"
NO_LIBRARY = "ImportError: libnccl.so.2: cannot open shared object file: No such file"
NO_ADDRESS = "it cannot listen on 10.0.0.7: this host has no such address"


def failed(last: str) -> tuple[str, str]:
    """The end of a worker that said that it ends."""
    return how_it_ended(1 << 8, last, ending=WorkerEnding(), ready=None)


ENDS: dict[str, tuple[tuple[str, str], str, str]] = {
    "asked": (how_it_ended(0, stopping=True), "stopped", "stopped"),
    "closed": (how_it_ended(0, ending=WorkerEnding()), "closed", "it was closed by the scheduler"),
    "restarted": (how_it_ended(9, restarting=True), "closed", "it was restarted"),
    "our limit": (
        how_it_ended(9, over_limit_bytes=2**30),
        "memory-limit",
        "it reached its memory limit of 1.0 GiB; give it more",
    ),
    "no room to spill": (
        how_it_ended(9, "OSError: [Errno 28] No space left on device", over_limit_bytes=2**31),
        "memory-limit",
        "it reached its memory limit of 2.0 GiB; it could not spill: its disk is full",
    ),
    "the host's memory": (
        how_it_ended(9, oom_kills=1),
        "oom-killer",
        OUT_OF_MEMORY.format("the host has none"),
    ),
    "a group's memory": (
        how_it_ended(9, oom_kills=1, limit_hits=1),
        "oom-killer",
        OUT_OF_MEMORY.format("a control group's limit is reached"),
    ),
    "kill -9": (how_it_ended(9), "signal", "killed (SIGKILL) from outside gputui"),
    "kill": (how_it_ended(0, ending=WorkerEnding(15)), "signal", SIGTERM),
    "crash": (how_it_ended(11), "signal", "SIGSEGV: a library crashed"),
    "crash after words": (
        how_it_ended(7, "loading CUDA kernels", "ImportError: no x", "failed to reach y"),
        "signal",
        "SIGBUS: a library crashed",
    ),
    "os._exit(0)": (how_it_ended(0), "crashed", f"exit code 0: {OF_TASK}"),
    "os._exit(1)": (how_it_ended(1 << 8, "bye"), "crashed", f"exit code 1: {OF_TASK}: bye"),
    "after an INFO": (
        how_it_ended(
            9 << 8, "bye", "2026-11-28 21:44:05,010 - distributed.core - INFO - To tls://"
        ),
        "crashed",
        f"exit code 9: {OF_TASK}: bye",
    ),
    "sys.exit(3)": (
        how_it_ended(1 << 8, "SystemExit: 3"),
        "crashed",
        "exit code 1: a task raised it: SystemExit: 3",
    ),
    "os._exit(7)": (how_it_ended(7 << 8), "crashed", f"exit code 7: {OF_TASK}"),
    "import": (failed("ImportError: no x"), "import-error", "ImportError: no x"),
    "library": (failed(NO_LIBRARY), "missing-library", f"a library is missing: {NO_LIBRARY}"),
    "device memory": (failed(OOM), "device-memory", f"device memory ran out: {OOM}"),
    "illegal address": (
        how_it_ended(6, ADDRESS, "Aborted"),
        "illegal-address",
        f"a kernel used an illegal address: {ADDRESS} (SIGABRT)",
    ),
    "Xid": (how_it_ended(6, device=XID), "signal", f"SIGABRT: a library crashed; its GPU: {XID}"),
    "GPU lost": (failed("CUDA: GPU is lost"), "gpu-lost", "its GPU is lost: CUDA: GPU is lost"),
    "CUDA": (failed("CUDA error 999"), "cuda-error", "CUDA error 999"),
    "address": (failed(NO_ADDRESS), "address", NO_ADDRESS),
    "its start": (failed("TimeoutError: x"), "crashed", "exit code 1: TimeoutError: x"),
}
"""What happened → how it is explained, the kind, and how its reason begins, as no other does."""


@pytest.mark.parametrize("what", ENDS)
def test_each_way_to_end_has_its_own_reason(what: str) -> None:
    found, kind, begins = ENDS[what]
    assert found[0] == kind
    assert [each for each in ENDS if ENDS[each][0][1].startswith(begins)] == [what]


def leave(code: int) -> None:
    print("these are the last words", flush=True)
    os._exit(code)


def send(number: int) -> None:
    import time

    os.kill(os.getpid(), number)
    time.sleep(30)


REAL: dict[str, tuple[Callable[[int], None], int, str, str]] = {
    "os._exit(0)": (leave, 0, "crashed", f"exit code 0: {OF_TASK}: these are the last words"),
    "os._exit(1)": (leave, 1, "crashed", f"exit code 1: {OF_TASK}: these are the last words"),
    "kill": (send, signal.SIGTERM, "signal", ENDS["kill"][2]),
    "kill -9": (send, signal.SIGKILL, "signal", ENDS["kill -9"][2]),
    "crash": (send, signal.SIGSEGV, "signal", "SIGSEGV: a library crashed"),
}


@pytest.mark.slow
async def test_a_real_worker_tells_how_it_ended(up: Driver, scheduler: Any) -> None:
    async with client_of(scheduler) as client:
        for what, (function, argument, kind, reason) in REAL.items():
            task = client.submit(function, argument, pure=False, retries=0)
            exited = await up.wait_for(WorkerExited)
            assert (what, exited.kind, exited.reason) == (what, kind, reason)
            task.release()
            await up.wait_for(WorkerReady)
