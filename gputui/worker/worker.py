"""The worker in its forked process: Dask's own, pinned, over TLS, without HTTP.

It reports to its agent through a pipe when it has registered and, on a GPU, which device its CUDA
context is on. Certificates stay in memory. Exit status: 0 closed, 1 could not start; why is
then the last line of its output.
"""

import asyncio
import contextlib
import errno
import math
import os
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any

import dask.config
import distributed
import numpy
from distributed.worker import DEFAULT_METRICS

from gputui.engine import wire
from gputui.engine.overrides import overriding
from gputui.engine.tls import security
from gputui.process.background import Shared
from gputui.process.child import signal_name
from gputui.process.lifetime import END_SIGNALS, forks_have_own_signals
from gputui.process.search_path import add_task_path
from gputui.protocol.agent import WorkerReady
from gputui.protocol.codec import encode
from gputui.protocol.forking import CANNOT_LISTEN, ForkWorker, WorkerEnding
from gputui.protocol.shared import Credentials
from gputui.worker.device import Device
from gputui.worker.stacks import answer_agent
from gputui.worker.transfers import comm as transfers
from gputui.worker.transfers.loans import moved_bytes

NO_PORT = "Could not start Worker on host"
"""How Dask's error begins where every port is in use (distributed 2026.8)."""
SEND_EVERY_S = 0.0005
"""How long messages to the scheduler are gathered; 2 ms with Dask."""


@overriding(
    start_http_server="self routes dashboard_address default_port ssl_options",
    execute="self key stimulus_id",
    get_data="self comm keys who serializers",
    close="self timeout executor_wait nanny reason",
    listen="self port_or_addr allow_offload kwargs",
)
class Worker(distributed.Worker):  # type: ignore[misc]
    """Dask's worker that serves no HTTP, and runs no task before its device is open."""

    device: Device | None = None
    contact_host = ""
    """Where others reach it; "" is where it listens."""

    async def listen(self, *args: Any, **kwargs: Any) -> None:
        """Listen, as Dask does, and announce the address that others are to use."""
        await super().listen(*args, **kwargs)
        if self.contact_host:
            self.contact_address = self._address = f"tls://{self.contact_host}:{self.port}"

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Start no HTTP server: the agent and the scheduler report on the worker."""

    async def execute(self, key: Any, *, stimulus_id: str) -> Any:
        """Run a task, as Dask does."""
        if self.device:
            await self.device.opened.wait()
        return await super().execute(key, stimulus_id=stimulus_id)

    async def get_data(
        self, comm: Any, keys: Any, who: str | None = None, serializers: Any = None
    ) -> Any:
        """Send values, as Dask does, once the device is done with them.

        Tasks return while their work is pending, and pickle reads an array of the device on the
        default stream, which does not wait for a stream of the task's own.
        """
        if self.device and self.device.memory.on_device(keys):
            await asyncio.to_thread(self.device.memory.settle)
        return await super().get_data(comm, keys, who=who, serializers=serializers)

    async def close(self, **wishes: Any) -> Any:
        """Close; a running task cannot be ended, and its result is not needed."""
        return await super().close(**{**wishes, "executor_wait": False})


def work(order: ForkWorker, credentials: Credentials, reports: int, agent: int) -> int:
    """Run a worker until it is closed; returns the exit status.

    It writes to `reports`, and lets `agent`, a pid, ask it. NumPy's own generator was forked with
    the rest, and is seeded again.
    """
    os.environ.update(order.spec.env)
    os.environ["CUDA_VISIBLE_DEVICES"] = order.spec.device_uuid or ""
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)
    numpy.random.seed()
    add_task_path()
    status = asked_by = 0
    try:
        asked_by = asyncio.run(_serve(order, credentials, reports, agent))
    except Exception as error:
        traceback.print_exc()
        print(why_not_started(error, order.listen_host, order.ports), flush=True)
        status = 1
    _report(reports, WorkerEnding(asked_by))
    return status


def why_not_started(error: BaseException, listen_host: str, ports: Sequence[int] = ()) -> str:
    """Return in one line why a worker could not start, which Dask's own error leaves out.

    >>> wrapped = RuntimeError("Worker failed to start.")
    >>> wrapped.__cause__ = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    >>> why_not_started(wrapped, "10.0.0.7")
    'it cannot listen on 10.0.0.7: this host has no such address'
    >>> why_not_started(OSError(errno.EADDRINUSE, ""), "10.0.0.7", (40000, 40000))
    'it cannot listen on 10.0.0.7: no port of worker-ports=40000-40000 is free'
    """
    while error.__cause__ is not None:
        error = error.__cause__
    in_use = getattr(error, "errno", None) == errno.EADDRINUSE
    if ports and (in_use or str(error).startswith(NO_PORT)):
        taken = f"no port of worker-ports={ports[0]}-{ports[1]} is free"
        return f"{CANNOT_LISTEN}{listen_host}: {taken}"
    if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
        return f"{CANNOT_LISTEN}{listen_host}: this host has no such address"
    return f"{type(error).__name__}: {error}"


async def _serve(order: ForkWorker, credentials: Credentials, reports: int, agent: int) -> int:
    """Start, register, report, and serve until closed; return the signal that asked for its end."""
    given, spec = dask.config.get("distributed.worker.resources"), order.spec
    device = Device(order, target_bytes(spec.memory_limit_bytes)) if spec.device_uuid else None
    transfers.set_up(device=spec.device_uuid or "")
    wire.register_torch()
    worker = Worker(
        order.scheduler_address,
        name=spec.name,
        nthreads=spec.nthreads,
        resources={**given, "GPU": 1.0} if device else None,
        memory_limit=spec.memory_limit_bytes,
        data=device.memory if device else None,
        local_directory=order.scratch,
        host=order.listen_host,
        port=range(order.ports[0], order.ports[1] + 1) if order.ports else None,
        protocol="tls",
        security=security(credentials.certificate_pem, credentials.key_pem),
        metrics={**DEFAULT_METRICS, "gputui": partial(_metrics, device)},
    )
    worker.device, worker.contact_host = device, order.contact_host
    worker.batched_stream.interval = SEND_EVERY_S
    transfers.serve_readers(worker)
    loop = asyncio.get_running_loop()
    closing = Shared[str | None]()
    asked_by: list[int] = []

    def close(number: int) -> None:
        asked_by.append(number)
        closing.begin(partial(worker.close, reason=signal_name(number)))

    for each in END_SIGNALS:
        loop.add_signal_handler(each, close, each)
    forks_have_own_signals()
    answer_agent(worker, reports, agent)
    context = loop.create_task(device.make_context()) if device else None
    await worker
    _report(reports, WorkerReady(order.spec.name, worker.address, None))
    if device and context:
        await device.open(context)
        _report(reports, WorkerReady(order.spec.name, worker.address, device.uuid))
    await worker.finished()
    return asked_by[0] if asked_by else 0


def _report(descriptor: int, report: WorkerReady | WorkerEnding) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, encode(report))


def _metrics(device: Device | None, _worker: distributed.Worker) -> dict[str, Any]:
    """Return the metrics of a heartbeat, for gputui's reporter at the scheduler."""
    moved = {way.value: size for way, size in moved_bytes.items() if size}
    uuid, held_bytes = (device.uuid, device.memory.device_bytes) if device else (None, None)
    return {"moved": moved, "device_uuid": uuid, "device_managed_bytes": held_bytes}


def target_bytes(limit: int) -> float:
    """Return how many bytes of values a worker keeps in host memory, by Dask's own setting."""
    return limit * (dask.config.get("distributed.worker.memory.target") or 0) or math.inf
