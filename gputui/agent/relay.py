"""Started by SSH or srun: passes bytes between stdio and the agent, which it starts if none runs.

File descriptor 1 is moved away first, so that only this module writes to the head.
The agent is forked from here, before any thread and any heavy import: one start of Python serves
both. The end of the relay is not the end of the agent: its lease begins. The end of the agent is
the end of the relay, which removes what one that was killed as it started could not.

A head that looks once is answered from here: it needs no agent.
"""

import contextlib
import os
import select
import selectors
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gputui.agent.agent_socket import AgentSocket
from gputui.errors import FolderError, ProtocolError
from gputui.folders import make_scratch_folder, remove_folder
from gputui.process.lifetime import (
    END_SIGNALS,
    children,
    dump_no_core,
    start_problem,
)
from gputui.protocol.agent import MARKER, AgentEnding, Configure, Facts
from gputui.protocol.codec import decode, encode

if TYPE_CHECKING:
    from gputui.agent.gpu.watch import DeviceWatch

CHUNK_BYTES = 2**16
FIRST_LINE_BYTES = 2**20
SHUTDOWN = b'"Shutdown"'
TURN_S = 0.02
DYING_S = 0.002
"""An agent that was killed gives up its connection first, and its lock a moment later."""


def relay() -> int:
    """Carry the channel of one head; returns when either end closes."""
    dump_no_core()  # the cluster's key passes through here, and stays in the agent
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(MARKER + b"\n")
    out.flush()
    in_step = "SLURM_STEP_ID" in os.environ
    try:
        came = _read_first_line()
        first, _, more = came.partition(b"\n")
        configure = decode(first, Configure)
        if configure.once:
            return 0 if SHUTDOWN in more else _look(configure, out)
        agent_socket = AgentSocket.of(configure.cluster_id, configure.host)
        agent, scratch = _agent_of(agent_socket, configure, out)
    except (ProtocolError, FolderError) as error:
        print(f"gputui agent: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"gputui agent: it could not be started: {start_problem(error)}", file=sys.stderr)
        return 1
    if in_step:  # when this process ends, Slurm kills the agent, which is to end in order first
        for number in END_SIGNALS:
            signal.signal(number, _ask_agent_to_end)
    with contextlib.suppress(OSError):
        agent.sendall(came)
        _pump(agent, out)
    if in_step:
        agent_socket.wait()
    time.sleep(DYING_S)
    if agent_socket.sweep() and scratch:
        remove_folder(scratch)
    return 0


def _read_first_line() -> bytes:
    """Return the first line of stdin, and all that came with it."""
    came = b""
    while b"\n" not in came and len(came) < FIRST_LINE_BYTES:
        if not (data := os.read(0, CHUNK_BYTES)):
            break
        came += data
    return came


def _agent_of(
    agent_socket: AgentSocket, configure: Configure, out: BinaryIO
) -> tuple[socket.socket, Path | None]:
    """Return a connection to the agent of this host; if it was started here, with its scratch.

    Raises OSError where no process can be started.
    """
    while (lock := agent_socket.hold()) is None:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return agent_socket.connect(), None
        time.sleep(TURN_S)  # another relay looks, or the agent is about to end
    scratch: Path | None = None
    try:
        scratch = make_scratch_folder(
            configure.temporary_directory or dict(configure.env).get("TMPDIR")
        )
        agent_socket.note(lock)
        with agent_socket.listen() as listener:
            if _in_new_session():
                try:
                    out.close()
                    _supervise(configure, agent_socket, listener, lock, scratch)
                finally:
                    os._exit(0)
            return agent_socket.connect(), scratch
    except OSError:
        if scratch:
            remove_folder(scratch)
        agent_socket.remove()
        raise
    finally:
        os.close(lock)


def _look(configure: Configure, out: BinaryIO) -> int:
    """Send this host's facts without an agent; ends with the head, and leaves nothing."""
    environ, watch = _watch(configure)
    head = threading.Thread(target=_end_with_head, args=(configure.lease_s,), daemon=True)
    said: Facts | AgentEnding
    try:
        head.start()
        watch.start()
        from gputui.agent.claims import open_claims
        from gputui.agent.facts import gather_facts

        watch.claims, problem = open_claims(environ)
        watch.processes.frontends = configure.frontends
        # A scratch folder is wanted by workers only, and a full disk has none.
        said = gather_facts(watch, scratch=Path("/"), environ=environ, problem=problem)
    except Exception as error:
        said = AgentEnding(f"describing this host failed: {start_problem(error)}", ())
    out.write(encode(said))
    out.flush()
    if isinstance(said, Facts):
        head.join()  # it ends this process
    return 1


def _end_with_head(lease_s: float) -> None:
    """End this process when its head says so, is gone, or is silent for `lease_s`."""
    while select.select([0], [], [], lease_s)[0] and (data := os.read(0, CHUNK_BYTES)):
        if SHUTDOWN in data:
            break
    os._exit(0)


def _watch(configure: Configure) -> "tuple[dict[str, str], DeviceWatch]":
    """Return the environment of this host, and what reads its GPUs once it is started."""
    from gputui.agent.gpu.watch import DeviceWatch

    environ = {**os.environ, **dict(configure.env), "GPUTUI_CLUSTER": configure.cluster_id}
    interval_s = configure.telemetry_interval_s
    return environ, DeviceWatch(configure.cluster_id, environ=environ, interval_s=interval_s)


def _supervise(
    configure: Configure,
    agent_socket: AgentSocket,
    listener: socket.socket,
    lock: int,
    scratch: Path,
) -> None:
    """Be the agent; its GPUs' driver opens while it is imported, which takes about as long."""
    environ, watch = _watch(configure)
    with contextlib.suppress(RuntimeError):  # no thread can be started: the agent will say so
        watch.start()
    from gputui.agent.supervisor import supervise

    supervise(configure, environ, watch, agent_socket, listener, lock, scratch)


def _in_new_session() -> bool:
    """Fork a process into a session of its own, without stdio; return whether this is that one.

    Signals that ask it to end wait until it can. Raises OSError where no process can be started.
    """
    if os.fork():
        return False
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    return True


def _ask_agent_to_end(number: int, _frame: object) -> None:
    """Pass on a signal to the agent, where it is a child of this process.

    Slurm's proctrack/cgroup sends what is not SIGKILL to this process alone.
    """
    for pid in children():
        os.kill(pid, number)


def _pump(agent: socket.socket, out: BinaryIO) -> None:
    """Copy both ways until one end closes; raises OSError where one breaks."""
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(agent, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            data = os.read(key.fd, CHUNK_BYTES)
            if not data:
                return
            if key.fd == 0:
                agent.sendall(data)
            else:
                out.write(data)
                out.flush()
