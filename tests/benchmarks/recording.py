"""What the flight recorder and the metrics cost.

    python -m tests.benchmarks.recording [--only recorder|metrics|tasks]

The recorder's CPU is that of a process that takes in a snapshot a second, with as many tasks in it
as a scheduler reports, and writes what it has as often as a run does. Empty tasks are those of a
script on a cluster that stays, with its run recorded, and with nothing of the kind; the sides take
turns.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gputui.head.metrics import MetricsServer, exposition
from gputui.head.scheduler.scheduler import MAX_SPANS
from gputui.model.snapshot import Snapshot, TaskSpan
from gputui.runs import Recording, new_record
from gputui.runs.recorder import FlightRecorder
from gputui.runs.run import TELEMETRY_EVERY_S
from tests.benchmarks.sides import Side, Times, own_folders, row, timed
from tests.tui.build import EPOCH, device, host, snapshot, worker

HOSTS, GPUS = 125, 8
SECONDS = 300
SCRAPES = 20
TASKS = 4_000
UNRECORDED = """
import sys
from gputui.runs.recorder import FlightRecorder
FlightRecorder.look = lambda self, snapshot: None
from gputui.__main__ import main
sys.argv[0] = "gputui"
sys.exit(main())
"""


def main() -> None:
    """Measure what was asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("recorder", "metrics", "tasks"))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with own_folders() as folder:
        for name, table in (("recorder", recorder), ("metrics", metrics), ("tasks", tasks)):
            if arguments.only in (name, None):
                table(folder, arguments.repeats)


def taken(hosts: int, second: int) -> Snapshot:
    """Return a cluster with so many hosts after some seconds, each GPU at work."""
    names = [f"host-{number:03d}" for number in range(hosts)]
    found = [
        host(
            name,
            *(
                device(n, name, utilization_percent=90.0 + n, power_w=600.0 + second % 50)
                for n in range(GPUS)
            ),
        )
        for name in names
    ]
    workers = tuple(
        worker(n, name, executing=1, current_task="step") for name in names for n in range(GPUS)
    )
    spans = tuple(
        TaskSpan(workers[n % len(workers)].name, f"step-{n % 7}", EPOCH + second, 0.5)
        for n in range(MAX_SPANS)
    )
    return snapshot(*found, workers=workers, spans=spans, at=EPOCH + second)


def recorder(folder: Path, _: int) -> None:
    """Print the recorder's share of a core, for one host and for many."""
    row("recording, % of a core a host", "looking", "writing", "together", "bar")
    for hosts in (1, HOSTS):
        snapshots = [taken(hosts, second) for second in range(min(SECONDS, 30_000 // hosts))]
        recording = Recording(
            new_record("svd", {}, backend="auto", hosts="h", version="1"), sys.exit
        )
        recorded = FlightRecorder()
        looking_s = cpu_s(lambda each=recorded, all=snapshots: list(map(each.look, all)))
        for second in range(len(snapshots), 4_000 // hosts + 1):  # a run that goes on for longer
            recorded.look(taken(hosts, second))
        writing_s = cpu_s(lambda each=recorded, to=recording: to.took(each.usage, each.telemetry))
        looking = 100 * looking_s / len(snapshots) / hosts
        writing = 100 * writing_s / TELEMETRY_EVERY_S / hosts
        size = (recording.record.folder / "telemetry.json").stat().st_size
        shares = (looking, writing, looking + writing)
        row(f"  {hosts} × {GPUS} GPUs", *(f"{each:.3f} %" for each in shares), "≤ 0.5 %")
        row("  its file by then", f"{size / 1e6:.2f} MB", "", "", "≤ 2 MB")


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU time of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def metrics(_: Path, __: int) -> None:
    """Print the server's share of a core, while another process scrapes once a second."""
    now = taken(HOSTS, 0)
    runs = {each.uuid: "svd-1" for on in now.hosts for each in on.devices}
    used_s, size = asyncio.run(_scraped(lambda: exposition(now, runs)))
    row(f"metrics of {HOSTS * GPUS:,} GPUs at 1 Hz", "of a core", "bytes", "", "bar")
    row("  the server", f"{100 * used_s / SCRAPES:.2f} %", f"{size / 1e6:.2f} MB", "", "≤ 2 %")


async def _scraped(text: Callable[[], str]) -> tuple[float, int]:
    """Return the CPU time of a server that is scraped, and the size of an answer."""
    server = MetricsServer(text)
    await server.open(0)
    scraper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRAPER, server.url, str(SCRAPES), stdout=subprocess.PIPE
    )
    began = time.process_time()
    said, _ = await scraper.communicate()
    used_s = time.process_time() - began
    server.close()
    return used_s, int(said)


SCRAPER = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for _ in range(int(sys.argv[2])):
    size = len(opener.open(sys.argv[1], timeout=10).read())
    time.sleep(1)
print(size)
"""


def tasks(folder: Path, repeats: int) -> None:
    """Print the empty tasks per second of a run that is recorded, and of one that is not."""
    script = folder / "empty.py"
    script.write_text(
        "import time\nfrom distributed import Client, wait\nclient = Client()\n"
        "wait(client.map(abs, range(1000), pure=False))\nbegan = time.perf_counter()\n"
        f"wait(client.map(abs, range({TASKS}), pure=False))\n"
        f"print('rate', {TASKS} / (time.perf_counter() - began))\n"
    )
    hosts = "localhost gpus=none workers=2 nthreads=1"
    with_gputui = (sys.executable, "-m", "gputui")
    subprocess.run([*with_gputui, "up", hosts, "--name", "recording"], check=True)
    try:
        words = ("--attach", "recording", "--quiet", "--run", str(script))
        sides = (
            Side("recorded", (*with_gputui, *words)),
            Side("not recorded", (sys.executable, "-c", UNRECORDED, *words)),
        )
        for side in sides:
            timed(side)
        times = [[timed(side) for side in sides] for _ in range(repeats)]
    finally:
        subprocess.run([*with_gputui, "down", "recording"], check=True)
    row(f"{TASKS:,} empty tasks", "recorded", "not recorded", "ratio", "bar")
    for what, measure, form, bar in (
        ("per second", _rate, ",.0f", "≥ 0.97 ×"),
        ("CPU of the command, s", lambda each: each.cpu_s, ".2f", ""),
    ):
        pairs = [[measure(each) for each in pair] for pair in times]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        row(f"  {what}", f"{ours:{form}}", f"{theirs:{form}}", f"{ratio:.3f} ×", bar)


def _rate(times: Times) -> float:
    (line,) = (line for _, line in times.lines if line.startswith("rate "))
    return float(line.removeprefix("rate "))


if __name__ == "__main__":
    main()
