"""A cluster as Prometheus' text format 0.0.4, with the names and units of NVIDIA's DCGM exporter.

A board made for DCGM works: its host label is there in both spellings (it became `hostname` in
May 2026). Labels that DCGM does not have say whose work it is: cluster, run, user, worker, task. A
reading that is missing has no sample. `MetricsServer` serves it to this machine, over HTTP.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping

from gputui.errors import HeadError
from gputui.fleet.addresses import LOOPBACK
from gputui.model.plain_text import safe
from gputui.model.readings import DeviceReading, users
from gputui.model.snapshot import HostStatus, Snapshot, WorkerStatus

MIB = 2**20
OWN_HOST = re.compile(rb"^host: *(127\.0\.0\.1|localhost)(:\d+)? *\r$", re.I | re.M)
"""A page whose own name leads here, as DNS can be made to say, sends that name."""
REQUEST_BYTES = 2**14
REQUEST_S = 5.0
ANSWER_S = 10.0
"""How long a reader may take for a request, and for its answer."""


def _in(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _free(device: DeviceReading) -> float | None:
    total, used = device.memory_total_bytes, device.memory_used_bytes
    return None if total is None or used is None else (total - used) / MIB


FAMILIES: tuple[tuple[str, str, str, Callable[[DeviceReading], float | None]], ...] = (
    ("GPU_UTIL", "gauge", "GPU utilization (in %).", lambda d: d.utilization_percent),
    ("FB_USED", "gauge", "Framebuffer used (in MiB).", lambda d: _in(d.memory_used_bytes, MIB)),
    ("FB_FREE", "gauge", "Framebuffer free (in MiB).", _free),
    ("POWER_USAGE", "gauge", "Power draw (in W).", lambda d: d.power_w),
    (
        "TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Energy since the driver was loaded (in mJ).",
        lambda d: _in(d.energy_j, 1e-3),
    ),
    ("GPU_TEMP", "gauge", "GPU temperature (in C).", lambda d: d.temperature_c),
    ("SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda d: d.sm_clock_mhz),
    ("ECC_DBE_VOL_TOTAL", "counter", "Uncorrected volatile errors.", lambda d: d.ecc_errors),
)
"""Name, which follows DCGM_FI_DEV_, kind, help and value of each metric of a GPU."""


def exposition(snapshot: Snapshot, runs: Mapping[str, str]) -> str:
    """Return a snapshot as text; `runs` names the run of a GPU, by its UUID."""
    workers = {worker.device_uuid: worker for worker in reversed(snapshot.workers)}
    devices = [
        (device, _labels(snapshot.name, host, device, workers.get(device.uuid), runs))
        for host in snapshot.hosts
        for device in host.devices
        if not (device.lost or device.stale)
    ]
    lines: list[str] = []
    for name, kind, help, value_of in FAMILIES:
        lines += _head(f"DCGM_FI_DEV_{name}", kind, help)
        for device, labels in devices:
            if (value := value_of(device)) is not None:
                lines.append(f"DCGM_FI_DEV_{name}{labels} {value:.15g}")
    cluster = f'cluster="{_escaped(snapshot.name)}"'
    lines += _head("gputui_workers", "gauge", "Workers by state.")
    for state, number in sorted(Counter(worker.state for worker in snapshot.workers).items()):
        lines.append(f'gputui_workers{{{cluster},state="{state}"}} {number}')
    lines += _head("gputui_tasks", "gauge", "Tasks that the scheduler knows.")
    lines.append(f"gputui_tasks{{{cluster}}} {snapshot.scheduler.tasks}")
    lines += _head("gputui_tasks_queued", "gauge", "Tasks that wait for a worker.")
    lines.append(f"gputui_tasks_queued{{{cluster}}} {snapshot.scheduler.queued}")
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _labels(
    cluster: str,
    host: HostStatus,
    device: DeviceReading,
    worker: WorkerStatus | None,
    runs: Mapping[str, str],
) -> str:
    """Return the labels of a GPU's samples, in braces."""
    index, _, instance = device.label.partition(".")
    values = {
        "gpu": index,
        "UUID": device.uuid,
        "device": f"nvidia{index}",
        "modelName": device.name,
        "Hostname": host.name,
        "hostname": host.name,
        "GPU_I_ID": instance,
        "cluster": cluster,
        "run": runs.get(device.uuid, ""),
        "user": next(iter(users(device)), ""),
        "worker": worker.name if worker else "",
        "task": (worker.current_task or "") if worker else "",
    }
    return "{" + ",".join([f'{k}="{_escaped(v)}"' for k, v in values.items() if v]) + "}"


def _escaped(value: str) -> str:
    r"""Return a label's value as it stands between quotes.

    >>> _escaped('a "b" \\ c')
    'a \\"b\\" \\\\ c'
    """
    if value.isalnum():
        return value
    return safe(value).replace("\\", "\\\\").replace('"', '\\"')


class MetricsServer:
    """Answers GET /metrics on the loopback address."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self.url = ""
        """"" while nothing is served."""

    async def open(self, port: int) -> None:
        """Begin to serve; raises HeadError where the port is taken."""
        try:
            self._server = await asyncio.start_server(
                self._answer, LOOPBACK, port, limit=REQUEST_BYTES
            )
        except OSError as error:
            hint = "name another one, or 0 for any"
            raise HeadError(f"--metrics {port}: {error.strerror}; {hint}") from error
        self.url = f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}/metrics"

    def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close; a reader that is slow or odd is left."""
        ends = OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        with contextlib.suppress(*ends), contextlib.closing(writer):
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
            asks = request.startswith((b"GET /metrics ", b"GET /metrics?"))
            found = asks and OWN_HOST.search(request) is not None
            body = self._text().encode() if found else b"GET /metrics\n"
            writer.write(
                f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\n"
                "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            )
            writer.write(body)
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
