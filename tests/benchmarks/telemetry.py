"""What a host's facts and telemetry cost: `python tests/benchmarks/telemetry.py [--fake 8]`.

Reads once a second as the agent does, encodes what it would send, and prints CPU time, waiting
and bytes. On a machine with fewer GPUs than wanted, `--copies` watches them several times over;
`--fake` stands in for them. The bar is 1 % of a core for 8 GPUs at 1 Hz.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputui.agent.facts import gather_facts
from gputui.agent.gpu.nvml import Nvml
from gputui.agent.gpu.telemetry import TelemetryReader
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.packages import installed
from gputui.protocol.codec import encode
from gputui.protocol.streams import deflating

FAKES = Path(__file__).parent.parent / "fakes"
WORKERS = 8
CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetUtilizationRates", ()),
    ("nvmlDeviceGetMemoryInfo", (0x02000028,)),
    ("nvmlDeviceGetTemperature", (0,)),
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetClockInfo", (1,)),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetComputeRunningProcesses", ()),
    ("nvmlDeviceGetMigMode", ()),
    ("nvmlDeviceGetEnforcedPowerLimit", ()),
    ("nvmlDeviceGetTotalEccErrors", (1, 0)),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What reading for a while took."""

    cpu_percent: float
    waits_s: tuple[float, ...]
    bytes_per_s: float
    gpus: int


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    if arguments.fake:
        os.environ["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": arguments.fake})
        sys.path.insert(0, str(FAKES))
    watches = [DeviceWatch("benchmark", environ=os.environ) for _ in range(arguments.copies)]
    with tempfile.TemporaryDirectory() as scratch, sleepers() as pids:
        _print_facts(watches[0], Path(scratch))
        for watch in watches[1:]:
            watch.start()
            watch.wait(30)
        cost = telemetry_cost(watches, pids, arguments.seconds)
    _print_cost(cost)
    _print_calls()
    for watch in watches:
        watch.stop()


@contextlib.contextmanager
def sleepers() -> Iterator[dict[str, int]]:
    """Start processes that stand in for workers; give their pids by worker name."""
    processes = [subprocess.Popen(["sleep", "3600"]) for _ in range(WORKERS)]
    try:
        yield {f"here:gpu{i}": process.pid for i, process in enumerate(processes)}
    finally:
        for process in processes:
            process.kill()
            process.wait()


def telemetry_cost(watches: list[DeviceWatch], pids: dict[str, int], seconds: int) -> Cost:
    """Read once a second for so many seconds, all threads of this process counted."""
    reader = TelemetryReader(watches[0])
    waits_s, sent, deflate = [], 0, deflating()
    deflate(encode(reader.read(pids)))
    time.sleep(1)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for second in range(1, seconds + 1):
        read_s = time.perf_counter()
        telemetry = reader.read(pids)
        waits_s.append(time.perf_counter() - read_s)
        sent += len(deflate(encode(telemetry)))
        time.sleep(max(0.0, began_s + second - time.perf_counter()))
    cpu_s = time.process_time() - began_cpu_s
    elapsed_s = time.perf_counter() - began_s
    gpus = sum(len(watch.devices()) for watch in watches)
    return Cost(100 * cpu_s / elapsed_s, tuple(waits_s), sent / elapsed_s, gpus)


def _print_facts(watch: DeviceWatch, scratch: Path) -> None:
    began_s = time.perf_counter()
    installed()
    packages_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    watch.start()
    facts = gather_facts(watch, scratch=scratch, environ=os.environ, timeout_s=30)
    facts_s = time.perf_counter() - began_s
    _row("package versions", f"{1000 * packages_s:.1f} ms")
    _row("all facts, NVML opened", f"{1000 * facts_s:.1f} ms")
    _row("  CUDA", facts.cuda_driver or "–")
    for device in facts.devices:
        memory_gib = (device.memory_total_bytes or 0) / 2**30
        _row(f"  GPU {device.label}", f"{device.name}, {memory_gib:.1f} GiB")
    for warning in facts.warnings:
        _row("  warning", warning)


def _print_cost(cost: Cost) -> None:
    _row(f"telemetry, {cost.gpus} GPUs, {WORKERS} workers, 1 Hz", f"{cost.cpu_percent:.2f} %")
    _row("  of a core; the bar", "1.00 %")
    _row("one read(), median", f"{1000 * statistics.median(cost.waits_s):.2f} ms")
    _row("one read(), longest", f"{1000 * max(cost.waits_s):.2f} ms")
    _row("sent", f"{cost.bytes_per_s / 1000:.1f} kB/s")


def _print_calls() -> None:
    """Print what each NVML call costs on the first GPU, Python's part included."""
    nvml = Nvml.open()
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", 0)
    for function, arguments in CALLS:
        times_s = []
        for _ in range(200):
            began_s = time.perf_counter()
            nvml.ask(function, handle, *arguments)
            times_s.append(time.perf_counter() - began_s)
        _row(function, f"{1e6 * statistics.median(times_s):.1f} µs")


def _row(what: str, value: str) -> None:
    print(f"{what:<46} {value:>24}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--fake", type=int, default=0, help="so many GPUs that are not there")
    parser.add_argument("--copies", type=int, default=1, help="watch the GPUs so many times over")
    return parser.parse_args()


if __name__ == "__main__":
    main()
