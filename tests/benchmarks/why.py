"""How long `gputui why` takes on many hosts whose scheduler is stopped, from its start to its end.

    python -m tests.benchmarks.why [--hosts 100] [--gpus 8] [--repeats 9]

The head and the command are real, on this machine's cores; agents and the scheduler are played, and
each worker has ten threads of thirty frames.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import time

from gputui.client.head_connection import HeadConnection
from tests.benchmarks.fleet import Process, Screen

BAR_S = 3.0


async def measure(hosts: int, gpus: int, repeats: int) -> None:
    """Print the median and the longest."""
    size = (str(hosts), str(gpus))
    of_fleet = {"module": "tests.benchmarks.fleet"}
    with (
        tempfile.TemporaryDirectory(prefix="gt-") as folder,
        Process("--be", "agents", f"{folder}/agents", *size, **of_fleet) as agents,
    ):
        os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_STATE_HOME"] = folder
        agents.first_line()
        with Process("--be", "head", f"{folder}/agents", *size, **of_fleet) as head:
            socket = await asyncio.to_thread(head.first_line)
            screen = Screen(await HeadConnection.open(socket, frontend="screen", snapshots=True))
            await screen.up(hosts * gpus)
            assert screen.snapshot
            pid = screen.snapshot.scheduler.pid
            os.kill(pid, signal.SIGSTOP)
            try:
                await all_answer(hosts * gpus)
                took = [await one() for _ in range(repeats)]
            finally:
                os.kill(pid, signal.SIGCONT)
            await screen.link.close()
    walls, cpus = zip(*took, strict=True)
    print(
        f"why, {hosts} hosts of {gpus} GPUs, scheduler stopped: {statistics.median(walls):.2f} s, "
        f"at most {max(walls):.2f} s (bar {BAR_S:.0f} s); {statistics.median(cpus):.2f} s of CPU"
    )


async def all_answer(workers: int) -> None:
    """See that no agent is left out for being slow."""
    said = json.loads((await run("--json"))[0])
    assert sum(len(host["workers"]) for host in said["hosts"]) == workers


async def one() -> tuple[float, float]:
    """Run the command once, and return its seconds, and those of CPU."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    out, _ = await run()
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert out.startswith(b"the scheduler's process is stopped"), out
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def run(*more: str) -> tuple[bytes, bytes]:
    """Run the command."""
    command = (sys.executable, "-m", "gputui", "why", *more)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    return await process.communicate()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.hosts, arguments.gpus, arguments.repeats))


if __name__ == "__main__":
    main()
