"""Train, and run every preset, and see that no GPU is said to be "busy at idle power".

    python -m tests.gpu.alarms [MINUTES]

Training is steps of a forward and a backward product on CuPy, of large and of small layers, with
pauses in which data are loaded, and checkpoints that go to the disk. Printed is, for each phase, by
how little a busy GPU cleared the alarm's bar and for how long at a time it was below it (it is an
alarm after 60 s). Exit status 1 where the alarm showed.
"""

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Client

from gputui import GPUCluster, presets
from gputui.client.head_connection import HeadConnection
from gputui.model.alarms import AlarmKind, Alarms
from gputui.model.readings import HANGING_PERCENT, HANGING_SHARE, DeviceReading, seems_to_hang
from gputui.model.slots import slots_of
from gputui.model.snapshot import Snapshot
from gputui.protocol.connection_file import find_cluster
from gputui.protocol.frontend import SnapshotTaken

MINUTES = 5.0
PHASES = {
    "large layers": {"width": 8192, "batch": 4096},
    "small layers": {"width": 1024, "batch": 256},
    "a model of one small layer": {"width": 256, "batch": 64},
    "large layers, waiting for data": {"width": 8192, "batch": 4096, "load_s": 0.5},
}
"""Each goes on for its part of the time, and at least as long as the alarm waits."""
LEAST_S = 70.0
PRESET_S = 240


@dataclass
class Watch:
    """What was seen of the GPUs, in each phase."""

    phase: str = ""
    alarms: Alarms = field(default_factory=Alarms)
    raised: list[str] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)
    """How many readings were of a busy GPU."""
    least: dict[str, tuple[float, str]] = field(default_factory=dict)
    """The least power of a busy GPU, as a share between idle and its limit, and the reading."""
    longest_s: dict[str, float] = field(default_factory=dict)
    """For how long at a time a GPU seemed to hang."""
    _since: dict[str, float] = field(default_factory=dict)

    def look(self, snapshot: Snapshot) -> None:
        """Take in a snapshot."""
        self.alarms.look(snapshot, slots_of(snapshot))
        hanging = [each for each in self.alarms if each.kind is AlarmKind.HANGS]
        self.raised += [f"{self.phase}: {each.subject}" for each in hanging]
        for host in snapshot.hosts:
            for device in host.devices:
                self._look_at(device, snapshot.taken_at)

    def _look_at(self, device: DeviceReading, at: float) -> None:
        since = self._since.get(device.uuid, at)
        self._since[device.uuid] = since if seems_to_hang(device) else at
        held_s = max(self.longest_s.get(self.phase, 0.0), at - self._since[device.uuid])
        self.longest_s[self.phase] = held_s
        busy, power = device.utilization_percent, device.power_w
        idle, limit = device.idle_power_w, device.power_limit_w
        if None in (busy, power, idle, limit) or busy < HANGING_PERCENT:
            return
        self.busy[self.phase] = self.busy.get(self.phase, 0) + 1
        share = (power - idle) / (limit - idle)
        reading = f"{busy:.0f} %, {power:.0f} W of {limit:.0f}, idle {idle:.0f} W"
        self.least[self.phase] = min(self.least.get(self.phase, (share, reading)), (share, reading))

    def table(self) -> str:
        """Return a line for each phase."""
        lines = [f"{'phase':<34}{'busy':>6}  {'below for':>9}  least power while busy"]
        for phase, held_s in self.longest_s.items():
            share, reading = self.least.get(phase, (0.0, ""))
            least = f"{share:.0%} (the bar is {HANGING_SHARE:.0%}): {reading}" if reading else "–"
            lines.append(f"{phase:<34}{self.busy.get(phase, 0):>5}s  {held_s:>8.0f}s  {least}")
        return "\n".join(lines)


def main() -> int:
    """Work, and print what was seen."""
    minutes = float(sys.argv[1]) if sys.argv[1:] else MINUTES
    watch = Watch()
    with ExitStack() as stack:
        cluster = stack.enter_context(GPUCluster("localhost"))
        client = stack.enter_context(Client(cluster))
        client.wait_for_workers(1, timeout=120)
        connection_file = find_cluster(cluster.name)
        assert connection_file is not None
        watching = watched(connection_file.socket, watch)
        stack.callback(watching.set)
        watch.phase = "idle"
        time.sleep(12)  # the power of an idle GPU is learned
        for phase, settings in PHASES.items():
            watch.phase = phase
            seconds = max(LEAST_S, 60 * minutes / len(PHASES))
            print(f"{phase}: {train_everywhere(client, seconds, **settings):,} steps", flush=True)
        for name in presets.names():
            watch.phase = name
            print(f"{name}: {run_preset(cluster.name, name)}", flush=True)
    print(watch.table())
    print("\n".join(watch.raised) or f"no GPU was said to be {AlarmKind.HANGS}")
    return int(bool(watch.raised))


def watched(socket: str, watch: Watch) -> threading.Event:
    """Take in the snapshots of the head in a thread, until the event is set."""
    ended = threading.Event()

    async def listen() -> None:
        connection = await HeadConnection.open(socket, frontend="command", snapshots=True)
        async for message in connection.messages():
            if ended.is_set():
                break
            if isinstance(message, SnapshotTaken):
                watch.look(message.snapshot)
        await connection.close()

    threading.Thread(target=lambda: asyncio.run(listen()), daemon=True).start()
    return ended


def train_everywhere(client: Client, seconds: float, **settings: Any) -> int:
    """Train on every worker at once; return the number of steps."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    tasks = [
        client.submit(train, seconds, workers=[worker], pure=False, **settings)
        for worker in workers
    ]
    return sum(client.gather(tasks))


def train(seconds: float, *, width: int, batch: int, load_s: float = 0.02) -> int:
    """Train two layers on made-up data; return the number of steps."""
    import cupy

    layers = [cupy.random.standard_normal((width, width), dtype="f4") / width for _ in range(2)]
    began = time.monotonic()
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < seconds:
            if step % 50 == 0:  # the next part of an epoch is read
                time.sleep(load_s)
                data = cupy.random.standard_normal((batch, width), dtype="f4")
            hidden = cupy.maximum(data @ layers[0], 0)
            error = hidden @ layers[1] - data
            back = (error @ layers[1].T) * (hidden > 0)
            layers[1] -= 1e-4 * (hidden.T @ error)
            layers[0] -= 1e-4 * (data.T @ back)
            step += 1
            if step % 20 == 0:
                float(error[0, 0])  # the loss is looked at
            if step % 2000 == 0:
                cupy.save(Path(folder, "checkpoint.npy"), layers[0])
    return step


def run_preset(cluster: str, name: str) -> str:
    """Run a preset as it is by default; return how that ended."""
    command = (sys.executable, "-m", "gputui", "--attach", cluster, "--run", name, "--quiet")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PRESET_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done within {PRESET_S} s"
    *_, said = ["", *(done.stderr or "").strip().splitlines()]
    return "done" if done.returncode == 0 else f"exit {done.returncode}: {said}"


if __name__ == "__main__":
    sys.exit(main())
