"""A run's energy by its record, against another process that reads NVML's counter.

    python -m tests.gpu.energy [--gpu 0] [--seconds 60] [--size 500000]

Preset random-sum runs on one GPU, once to see how fast it is and then for about so many seconds,
while a process of its own reads `nvmlDeviceGetTotalEnergyConsumption`. Compared is what the counter
gained between the first and the last moment that the record tells of. Exit status 1 above 3 %.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

from gputui.runs import RunRecord, find
from gputui.runs.records import telemetry_of

BAR_PERCENT = 3.0
READ_EVERY_S = 0.2
WORK = ("--run", "random-sum", "-p")


def main() -> int:
    """Measure, and print both figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", type=int, default=0, help="its NVML index")
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long")
    parser.add_argument("--size", type=int, default=500_000, help="of random-sum, at first")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputui-energy-") as folder:
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            os.environ[name] = folder
        hosts, size = f"localhost gpus={arguments.gpu}", arguments.size
        first = ran(hosts, *WORK, f"size={size}")
        took_s = first.timings.get("computing") or first.elapsed_s or 1.0
        size = int(size * (arguments.seconds / took_s) ** 0.5)
        print(f"random-sum took {took_s:.1f} s at first; now with size={size:,}", flush=True)
        with reading(arguments.gpu, Path(folder, "counter")) as counter:
            record = ran(hosts, *WORK, f"size={size}")
        return compared(record, counter)


def ran(hosts: str, *words: str) -> RunRecord:
    """Run something with gputui; return its record."""
    command = (sys.executable, "-m", "gputui", hosts, *words)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return find("last")


@contextlib.contextmanager
def reading(gpu: int, path: Path) -> Iterator[Path]:
    """Have a process of its own write moments and the counter's values, in mJ, to a file."""
    command = (sys.executable, "-c", READER, str(gpu), str(path), str(READ_EVERY_S))
    process = subprocess.Popen(command)
    try:
        while not path.exists():
            time.sleep(READ_EVERY_S)
        yield path
        time.sleep(2 * READ_EVERY_S)
    finally:
        process.kill()
        process.wait()


READER = """
import sys, time, pynvml
gpu, path, every_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(gpu)
with open(path, "w", buffering=1) as file:
    while True:
        file.write(f"{time.time()} {pynvml.nvmlDeviceGetTotalEnergyConsumption(device)}\\n")
        time.sleep(every_s)
"""


def compared(record: RunRecord, counter: Path) -> int:
    """Print both figures and their difference; return the exit status."""
    usage, (began_at, *_) = record.usage, telemetry_of(record).times
    assert usage is not None and usage.energy_wh is not None, "it has no energy"
    lines = [line.split() for line in counter.read_text().splitlines()]
    readings = [(float(at), float(energy_mj) / 3.6e6) for at, energy_mj in lines]
    ended_at, seconds = began_at + usage.watched_s, 3600 * usage.gpu_hours / usage.gpus
    began_at = ended_at - seconds  # the GPU may have become the run's after the first look
    gained_wh = at_moment(readings, ended_at) - at_moment(readings, began_at)
    percent = 100 * (usage.energy_wh / gained_wh - 1)
    watts = 3600 * gained_wh / seconds
    print(f"{seconds:.1f} s of {usage.gpus} GPU, {watts:.0f} W on average")
    print(f"the record      {usage.energy_wh:.3f} Wh")
    print(f"the counter     {gained_wh:.3f} Wh   ({len(readings)} readings)")
    print(f"the difference  {percent:+.2f} %   (at most {BAR_PERCENT:.0f} %)")
    return int(abs(percent) > BAR_PERCENT)


def at_moment(readings: Sequence[tuple[float, float]], at: float) -> float:
    """Return the counter at a moment, between the readings before and after it.

    >>> at_moment([(0.0, 10.0), (2.0, 20.0)], 0.5)
    12.5
    """
    place = bisect_left(readings, (at, 0.0))
    if not 0 < place < len(readings):
        raise SystemExit("the counter was not read at both ends of the run")
    (before, less), (after, more) = readings[place - 1 : place + 1]
    return less + (more - less) * (at - before) / (after - before)


if __name__ == "__main__":
    sys.exit(main())
