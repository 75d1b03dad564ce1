"""Import what workers need once, then fork each of them; the agent's one heavy child.

It takes the agent's orders, a line each, and reports how workers end. One thread and no CUDA
context make forking safe.
It outlives the agent for a moment: when that is gone, it ends all that was started on this host,
and removes what the agent can no longer remove.
"""

import atexit
import contextlib
import gc
import io
import os
import selectors
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import NoReturn

from gputui.agent.agent_socket import AgentSocket
from gputui.engine import dask_settings
from gputui.process import lifetime
from gputui.process.handle import WORKER_MARK, Handle, worker_of
from gputui.protocol.codec import decode, encode
from gputui.protocol.forking import (
    Forked,
    ForkEnded,
    ForkFailed,
    ForkWorker,
    FromForkserver,
    Imported,
    ToForkserver,
)
from gputui.protocol.shared import Credentials

READ_BYTES = 2**16

IDLE_S = 1.0
"""Without an order, once there are workers, before what tasks use is imported."""

THREADS_S = 1.0
"""How long threads of tasks may hold up a worker that ends."""

ATEXIT_S = 0.5
"""How long `atexit` functions of tasks may take after that."""

FILES_S = 0.5
"""How long the files that tasks left open may take to be written out in the end."""


def forkserver(control_fd: int, scratch: Path, agent_socket: AgentSocket) -> NoReturn:
    """Serve orders until the agent closes the socket, then end at once."""
    os.dup2(2, 1)
    lifetime.adopt_orphans()
    server = Forkserver(socket.socket(fileno=control_fd))
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    gc.disable()  # a tenth of the imports' time; and a collection writes to what workers share
    import gputui.worker.worker  # what every worker needs: they share its memory, and start sooner

    del gputui
    gc.freeze()  # no collection in a worker writes to these, and so copies them
    server.send(Imported(len(os.listdir("/proc/self/task")) - 1))  # noqa: PTH208 - names only
    server.serve()
    lifetime.end_children()
    shutil.rmtree(scratch, ignore_errors=True)
    agent_socket.sweep()
    os._exit(0)


class Forkserver:
    """The workers that were forked here, by pid."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._agent = os.getppid()
        self._partial = b""
        self._workers: dict[int, str] = {}
        self._credentials: Credentials | None = None
        self._imported = False

    def send(self, message: FromForkserver) -> None:
        """Send the agent a message, if it is there."""
        with contextlib.suppress(OSError):
            self._control.sendall(encode(message))

    def serve(self) -> None:
        """Carry out orders, and report workers that end, until the agent is gone."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            events = selector.select(IDLE_S if self._workers and not self._imported else None)
            if not events:
                self._import_for_tasks()
            for key, _ in events:
                if key.fd == woken:
                    os.read(woken, 4096)
                elif not self._take_orders():
                    return
            self._reap()

    def _take_orders(self) -> bool:
        """Carry out the orders that have come; False when the agent is gone."""
        try:
            came = self._control.recv(READ_BYTES)
        except OSError:
            return False
        *lines, self._partial = (self._partial + came).split(b"\n")
        for line in lines:
            order = decode(line, ToForkserver)
            if isinstance(order, Credentials):
                self._credentials = order
                dask_settings.apply(order.dask_config_json)
                continue
            if not order.spec.device_uuid:
                self._import_for_tasks()
            try:
                self._fork(order)
            except OSError as error:  # no process is free; or the agent is gone
                self.send(ForkFailed(order.spec.name, lifetime.start_problem(error)))
        return bool(came)

    def _import_for_tasks(self) -> None:
        """Import what tasks use, for every worker that is forked from now on.

        dask.array imports SciPy and CuPy where they are, up to 0.7 s. So the first workers on GPUs
        import it themselves, while the driver makes their contexts in turn.
        """
        if not self._imported:
            import dask.array

            del dask
            gc.freeze()
            self._imported = True

    def _fork(self, order: ForkWorker) -> None:
        """Fork a worker, and report its pid.

        A thread of Python's may hold a lock that the worker would wait for without end.
        """
        running = [thread.name for thread in threading.enumerate()]
        assert len(running) == 1, f"workers are forked from one thread, not from {running}"
        parent = os.getpid()
        output, reports = (
            os.open(f"/proc/{self._agent}/fd/{number}", os.O_WRONLY | os.O_CLOEXEC)
            for number in (order.output, order.reports)  # the agent reads their other ends
        )
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(order, parent, output, reports)
        finally:
            os.close(output)
            os.close(reports)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._workers[pid] = order.spec.name
        self.send(Forked(order.spec.name, pid, Handle.of(pid).start_ticks))

    def _become_worker(self, order: ForkWorker, parent: int, output: int, reports: int) -> None:
        """Run the worker in this process; never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)
            lifetime.die_with(parent)
            os.environ[WORKER_MARK] = str(os.getpid())
            self._control.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            # Each line that a task prints is seen at once: a pipe gets 8 KiB at a time otherwise.
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
            gc.enable()
            from gputui.worker.worker import work

            assert self._credentials is not None, "credentials come before workers"
            status = work(order, self._credentials, reports, self._agent)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            _exit(status)

    def _reap(self) -> None:
        """Report the workers that ended, and end the processes that their tasks started.

        Those are in the worker's group, or marked and in sessions of their own.
        """
        reaped = False
        while (ended := _ended_child()) is not None:
            lifetime.kill_group(ended)
            _, status = os.waitpid(ended, 0)
            reaped = True
            if name := self._workers.pop(ended, None):
                self.send(ForkEnded(name, status))
        for pid in lifetime.children() if reaped else ():
            if pid not in self._workers and worker_of(pid) not in (None, *self._workers):
                lifetime.end(pid)


def _exit(status: int) -> NoReturn:
    """End this process as Python does: join threads, run exit handlers, flush files.

    Each has a bound of its own, so that none takes the time of the next. Only modules are not
    taken down: daemon threads of tasks may run in them still.
    """
    try:
        for step, bound_s in (
            (threading._shutdown, THREADS_S),  # type: ignore[attr-defined]
            (atexit._run_exitfuncs, ATEXIT_S),
            (_close_files, FILES_S),
        ):
            thread = threading.Thread(target=step, daemon=True)
            thread.start()
            thread.join(bound_s)
    finally:
        os._exit(status)


def _close_files() -> None:
    """Close the files that tasks left open, so that all they wrote is in them, and flush output."""
    kinds = (io.TextIOBase, io.BufferedIOBase)
    files = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    for file in sorted(files, key=_layer):  # not those from before the fork: they are frozen
        with contextlib.suppress(Exception):
            file.close()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _layer(file: object) -> int:
    """Return when to close a file: a text's own buffer is written first, then what compresses."""
    if issubclass(type(file), io.TextIOBase):
        return 0
    return 2 if type(file).__module__ == "_io" else 1


def _ended_child() -> int | None:
    """Return a child that ended and is not reaped, so that its group is still its own."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None
