"""The worker, in the process that the nursery forked: Dask's own, pinned, over TLS, without HTTP.

It tells its agent through a pipe when it has registered and, on a GPU, which device its CUDA
context is on. Certificates stay in memory. Exit status: 0 closed, 75 no scheduler.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from typing import Any

import distributed
import numpy
from distributed.security import Security
from distributed.worker import DEFAULT_METRICS

NO_SCHEDULER = 75
"""Source: sysexits.h, EX_TEMPFAIL."""


class Worker(distributed.Worker):  # type: ignore[misc]
    """Dask's worker that serves no HTTP."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Start none: whoever wants to see the worker asks its agent or its scheduler."""


def security(certificate_pem: str, key_pem: str) -> Security:
    """Return mutual TLS with one certificate for all, from PEM text."""
    return Security(
        require_encryption=True,
        tls_ca_file=certificate_pem,
        **{
            f"tls_{role}_{part}": pem
            for role in ("client", "worker", "scheduler")
            for part, pem in (("cert", certificate_pem), ("key", key_pem))
        },
    )


def work(spec: Mapping[str, Any], credentials: Mapping[str, Any], reports: int) -> int:
    """Be a worker until it is closed; returns the exit status.

    `spec` has the fields of `plan.WorkerSpec`, and scheduler_address, listen_host, scratch.
    NumPy's own generator was forked with the rest, and is seeded anew.
    """
    for key, value in spec["env"]:
        os.environ[key] = value
    if spec["device_uuid"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = spec["device_uuid"]
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    numpy.random.seed()
    try:
        asyncio.run(_serve(spec, credentials, reports))
    except (TimeoutError, OSError) as error:
        print(f"no scheduler at {spec['scheduler_address']}: {error}", flush=True)
        return NO_SCHEDULER
    return 0


async def _serve(spec: Mapping[str, Any], credentials: Mapping[str, Any], reports: int) -> None:
    """Start, register, report, and serve until closed."""
    device = Device(spec["device_uuid"])
    worker = Worker(
        spec["scheduler_address"],
        name=spec["name"],
        nthreads=spec["nthreads"],
        resources={"GPU": 1.0} if spec["device_uuid"] else None,
        memory_limit=spec["memory_limit_bytes"],
        local_directory=spec["scratch"],
        host=spec["listen_host"],
        protocol="tls",
        security=security(credentials["certificate_pem"], credentials["key_pem"]),
        metrics={**DEFAULT_METRICS, "gputui": device.metric},
        **_memory_settings(spec),
    )
    loop = asyncio.get_running_loop()
    closing: set[asyncio.Task[None]] = set()

    def close() -> None:
        closing.add(loop.create_task(worker.close(reason="stopped by gputui")))

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, close)
    await worker
    _report(reports, address=worker.address)
    if spec["device_uuid"]:
        await asyncio.to_thread(device.open, spec["lock"])
        _report(reports, address=worker.address, device_uuid=device.uuid)
    await worker.finished()


def _memory_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a GPU worker does about memory: nothing that counts device bytes as host bytes.

    Dask counts a CuPy array's bytes against the host limit, and past 60 % of it writes device
    arrays to disk. The process's own memory still pauses it, and the agent ends it at its limit.
    """
    if not spec["device_uuid"]:
        return {}
    return {"memory_target_fraction": False, "memory_spill_fraction": False}


def _report(descriptor: int, **values: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps(values).encode() + b"\n")


class Device:
    """The GPU of this worker: its CUDA context, and the UUID of what the context is on."""

    def __init__(self, pinned_uuid: str | None) -> None:
        self.pinned_uuid = pinned_uuid
        self.uuid: str | None = None

    def open(self, lock: str) -> None:
        """Make the CUDA context, in turn with the other workers of the host; blocks."""
        from gputui.agent.cuda import open_device

        try:
            self.uuid = open_device(lock)
        except OSError as error:
            print(f"CUDA: no context on {self.pinned_uuid}: {error}", flush=True)

    def metric(self, worker: distributed.Worker) -> dict[str, Any]:
        """Return what the scheduler's reporter reads of this worker's device."""
        return {"device_uuid": self.uuid, "device_managed_bytes": None}
