"""Let a worker's agent ask for its stacks, whatever its threads do.

A signal is answered by Python, in the main thread between two bytecodes: thread names and task
keys are known there. Where the GIL is held no Python runs, and a second signal has `faulthandler`
write the frames. Both write lines to the pipe for reports, without waiting for its reader.
"""

import ctypes
import faulthandler
import os
import re
import select
import signal
import sys
import threading
import traceback
from dataclasses import replace
from types import FrameType

import distributed

from gputui.model.examination import Fetch, ThreadStack, Transfers, short_frame
from gputui.protocol.codec import encode
from gputui.protocol.shared import ASK_SIGNAL, DUMP_SIGNAL

COORDINATION = re.compile(r"distributed/(lock|semaphore|queues|event|variable)\.py$")
"""Files of what tasks wait for each other with, by name."""
PR_SET_PTRACER = 0x59616D61
"""Source: prctl(2)."""
MOST_THREADS = 60
MOST_FRAMES = 40
MOST_PEERS = 100


def answer_agent(worker: distributed.Worker, reports: int, agent: int) -> None:
    """Answer the agent's signals from now on, and let its children trace this process."""
    os.set_blocking(reports, False)

    def answer(_number: int, frame: FrameType | None) -> None:
        try:
            for each in [*stacks(worker, frame), transfers(worker)]:
                os.write(reports, encode(each))
        except BlockingIOError:
            pass  # nobody reads
        except Exception:  # of whatever Dask has changed: the interrupted code has no part in it
            traceback.print_exc()

    signal.signal(ASK_SIGNAL, answer)
    signal.siginterrupt(ASK_SIGNAL, False)
    faulthandler.register(DUMP_SIGNAL, file=reports)
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, agent, 0, 0, 0)


def stacks(worker: distributed.Worker, interrupted: FrameType | None) -> list[ThreadStack]:
    """Return the stack of each thread; `interrupted` is the main one's, from before the signal."""
    known = {thread.ident: thread for thread in threading.enumerate()}
    tasks = dict(worker.active_threads)
    frames = sys._current_frames()
    frames[threading.get_ident()] = interrupted or frames[threading.get_ident()]
    found = []
    for ident, frame in [*frames.items()][:MOST_THREADS]:
        task = str(tasks[ident]) if ident in tasks else ""
        thread = known.get(ident)
        name, number = (thread.name, thread.native_id) if thread else (f"thread {ident}", 0)
        stack = ThreadStack(name, frames_of(frame), task, number=number or 0)
        while len(encode(stack)) > select.PIPE_BUF:  # else it might be written in parts
            stack = replace(stack, frames=stack.frames[: len(stack.frames) // 2], task=task[:200])
        found.append(stack)
    return found


def frames_of(frame: FrameType | None) -> tuple[str, ...]:
    """Return a stack as text, the innermost frame first."""
    found: list[str] = []
    while frame is not None and len(found) < MOST_FRAMES:
        code = frame.f_code
        shown = short_frame(code.co_filename, frame.f_lineno, code.co_name)
        if COORDINATION.search(code.co_filename):
            shown += f" {getattr(frame.f_locals.get('self'), 'name', '')}"
        found.append(shown.rstrip())
        frame = frame.f_back
    return tuple(found)


def transfers(worker: distributed.Worker) -> Transfers:
    """Return the results on their way to a worker, and the tasks that wait for some."""
    coming = list(worker.state.in_flight_workers.items())[:MOST_PEERS]
    fetching = tuple(Fetch(address, len(keys)) for address, keys in coming)
    return Transfers(fetching, len(worker.state.waiting))
