"""Examine workers that may be stuck: state, wait channel, and the stack of every thread.

Each worker is asked by a signal, which its Python answers in its main thread. Where that does not
run, py-spy reads the stacks from outside if it is installed, else `faulthandler` writes them.
Everything is bounded, and no worker is signalled that has no handler or is stopped.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gputui.agent.worker_process import Answer, WorkerProcess
from gputui.model.examination import (
    ExaminedHost,
    ExaminedWorker,
    ThreadStack,
    parse_dump,
    short_frame,
)
from gputui.process import procfs
from gputui.process.background import within
from gputui.process.cgroups import Cgroups
from gputui.process.child import run
from gputui.protocol.shared import ASK_SIGNAL, DUMP_SIGNAL

ANSWER_S = 0.9
DUMP_S = 0.3
PY_SPY_S = 0.9
REST_S = 0.4
"""A thread that has not run for so long, in a process that did next to nothing, waits."""
REST_TICKS = 0.2 * procfs.TICKS_PER_S
WAITS = (
    ("(anon_)?pipe_read", "reads from a pipe"),
    ("(anon_)?pipe_write", "writes to a pipe that nobody reads"),
    ("fifo_open|wait_for_partner", "waits in open for the other end of a pipe"),
    ("do_wait", "waits for a child process"),
    ("futex", "waits for a lock of this process"),
    (".*nanosleep", "sleeps"),
    (".*lock_inode|flock|fcntl_setlk", "waits for the lock of a file"),
    ("unix_", "reads from a socket of this host"),
    ("sk_wait|tcp_|inet_|wait_woken", "reads from the network"),
    (".*poll|do_select", "waits for a connection or a file"),
    ("nfs|rpc_", "waits for NFS"),
    ("fuse|request_wait_answer", "waits for a FUSE file system"),
)
"""How the kernel's function begins that a thread waits in → what that means."""
FULL_BYTES = 2**26
"""A disk with less than this free is full."""
TASKS_SHARE = 0.95
"""A control group with so many of its processes and threads may hardly start one more."""
ALL_FRAMES = 6_000
"""Of all workers together: a line of the channel holds them."""
MOST_THREADS = 100
MOST_FRAMES = 40
MOST_UNREACHED = 100
MOST_CHILDREN = 5


async def examine(
    workers: Iterable[WorkerProcess], scratch: Path, cgroups: Cgroups
) -> ExaminedHost:
    """Return how the host and its workers do."""
    running = [each for each in workers if each.pid is not None]
    frames = max(5, ALL_FRAMES // max(1, len(running)))
    found = await asyncio.gather(*(_examine(each, frames) for each in running))
    full: tuple[str, ...] = ()
    with contextlib.suppress(RuntimeError):  # no thread can be started
        full = await asyncio.to_thread(full_disks, scratch)
    tasks, most = cgroups.tasks() or (0, 1)
    return ExaminedHost(
        workers=tuple(each for each in found if each is not None),
        memory_stall_percent=procfs.memory_pressure(),
        full_disks=full,
        tasks_full=f"{tasks:,} of {most:,}" if tasks >= TASKS_SHARE * most else "",
        unreached=procfs.unanswered()[:MOST_UNREACHED],
    )


def full_disks(scratch: Path) -> tuple[str, ...]:
    """Return the folders that workers write to and that have no room."""
    found = []
    for what, folder in (
        ("workers' files", str(scratch)),
        ("temporary files", tempfile.gettempdir()),
        ("home", str(Path.home())),
        ("shared memory", "/dev/shm"),
    ):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(folder).free < FULL_BYTES:
                found.append(f"{what} ({folder})")
    return tuple(found)


async def _examine(worker: WorkerProcess, most_frames: int) -> ExaminedWorker | None:
    """Return one worker's examination; None where it has just ended."""
    if (process := worker.process) is None or (stat := procfs.process_stat(process.pid)) is None:
        return None
    pid = process.pid
    answer, problem = Answer(), ""
    worker.answer = answer
    if stat.stopped:
        problem = "a stopped process shows no stacks"
    elif stat.state == "t":
        problem = f"{procfs.tracer(pid)} traces and holds it"
    elif not procfs.catches(pid, ASK_SIGNAL):
        problem = "it is not up yet"
    else:
        process.send_signal(ASK_SIGNAL)
        if not await within(ANSWER_S, answer.complete.wait()):
            answer.threads = [*(await by_py_spy(pid) or await _dumped(pid, answer))]
            problem = "" if answer.threads else "neither its Python nor faulthandler answered"
        else:
            answer.threads = await _with_waits(pid, answer.threads)
    most = max(3, most_frames // max(1, len(answer.threads)))
    return ExaminedWorker(
        name=worker.spec.name,
        pid=pid,
        state=stat.state,
        wait_channel=procfs.wait_channel(pid),
        answered=answer.complete.is_set(),
        threads=tuple(
            replace(thread, frames=thread.frames[:most]) for thread in answer.threads[:MOST_THREADS]
        ),
        transfers=answer.transfers,
        problem=problem,
        most_files=_most_files(pid),
    )


def _most_files(pid: int) -> int:
    with contextlib.suppress(OSError):
        return max(0, resource.prlimit(pid, resource.RLIMIT_NOFILE)[0])
    return 0


async def _with_waits(pid: int, threads: list[ThreadStack]) -> list[ThreadStack]:
    """Return threads with what those wait for that run tasks and do not run at all."""
    try:
        before = {each.number: procfs.ran(pid, each.number) for each in threads if each.task}
        if not before:
            return threads
        await asyncio.sleep(REST_S)
        return [
            replace(each, waits=waits_for(pid, each.number))
            if each.number in before and _rested(before[each.number], procfs.ran(pid, each.number))
            else each
            for each in threads
        ]
    except OSError:  # a thread has just ended
        return threads


def _rested(before: tuple[int, object], after: tuple[int, object]) -> bool:
    return after[1] == before[1] and after[0] - before[0] < REST_TICKS


def waits_for(pid: int, thread: int) -> str:
    """Describe the wait of a thread, by the function of the kernel that it is in."""
    channel = procfs.wait_channel(pid, thread)
    words = next((words for start, words in WAITS if re.match(start, channel)), "")
    if channel == "do_wait":
        children = [procfs.process_stat(each) for each in procfs.with_descendants(pid)[1:]]
        names = [each.command for each in children if each and each.parent == pid]
        words += f": {', '.join(names[:MOST_CHILDREN])}"
    return words or f"waits in the kernel: {channel or 'it does not say in what'}"


async def _dumped(pid: int, answer: Answer) -> tuple[ThreadStack, ...]:
    """Have `faulthandler` write the frames of every thread, and return them."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, DUMP_SIGNAL)
    await asyncio.sleep(DUMP_S)
    return parse_dump(answer.dumped)


async def by_py_spy(pid: int) -> list[ThreadStack]:
    """Return the threads that py-spy sees; none where it is not installed, refused or too old."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if (program := shutil.which("py-spy", path=path)) is None:
        return []
    try:
        ended = await run([program, "dump", "--nonblocking", "--json", "--pid", str(pid)], PY_SPY_S)
        return [
            ThreadStack(
                thread["thread_name"] or f"thread {thread['thread_id']}",
                tuple(
                    short_frame(each["filename"], each["line"], each["name"].rpartition(".")[2])
                    for each in thread["frames"][:MOST_FRAMES]
                ),
                has_gil=bool(thread["owns_gil"]),
            )
            for thread in json.loads(ended.output)
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []
