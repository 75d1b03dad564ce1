"""What hosts report is kept within a budget: the process does not grow, whatever they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from gputui.model.bounds import KEPT_BYTES

ROOT = Path(__file__).parent.parent.parent
PEAK = """
import resource

def peak_bytes():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""
SENDS = f"""{PEAK}
from gputui.head.broadcasts import EventLog, LogRelay
from gputui.head.server import FrontendConnection
from gputui.model.snapshot import Severity
from gputui.protocol.shared import LogLines

class Following:
    def send(self, message):
        pass

events = EventLog(lambda event: None)
logs = LogRelay(lambda on: None)
logs.subscribe(Following(), True)
before = peak_bytes()
for number in range(1_000):
    host = f"host{{number % 200}}"
    for part in range(20):
        worker, text = f"{{host}}:gpu{{part}}", f"{{number}} {{part}} " * 999
        events.tell(Severity.WARNING, worker, "x" * 500, text)
    lines = tuple(f"{{number}} {{part}} ".ljust(8_000) for part in range(120))
    logs.printed(LogLines(f"{{host}}:gpu0", lines, 0.0))
print(peak_bytes() - before)
"""
LIES = f"""{PEAK}
import asyncio
import logging
from dataclasses import replace

from gputui.demo.devices import SimulatedGpu
from gputui.head.broadcasts import EventLog, LogRelay
from gputui.head.cluster_view import RecentHistory
from gputui.model.readings import DeviceReading, HostReading
from gputui.protocol.agent import FromAgent, Telemetry, Trouble, WorkerExited
from gputui.protocol.channel import LINE_BYTES
from gputui.protocol.shared import LogLines
from gputui.protocol.typed_codec import decode, encode
from tests.fleet.simulated import SimulatedFleet

logging.disable()
GPUS = 500
ROUNDS = 120
FULL = ("é",) * 128  # of all readings, what fills most memory for its bytes

def gpus(number):
    return tuple(
        DeviceReading(f"{{number}} {{gpu}}".ljust(512), str(gpu), "H200", throttle_reasons=FULL)
        for gpu in range(GPUS)
    )

async def main():
    one = SimulatedFleet(1, gpus=GPUS)
    events, kept = EventLog(lambda event: None), LogRelay(lambda on: None)
    one.head.tell, one.head.logs_printed = events.tell, kept.printed
    history = RecentHistory(lambda: one.fleet.host_statuses, lambda: one.fleet.cpu_workers)
    await one.up(GPUS)
    history.take(0.0)
    host = one.fleet._hosts["h0"]
    facts, before = host.facts, peak_bytes()

    def says(message):
        line = encode(message)
        assert len(line) < LINE_BYTES
        host._received(decode(line, FromAgent))

    for number in range(ROUNDS):
        says(replace(facts, devices=gpus(2 * number)))
        says(Telemetry(number, HostReading(), gpus(2 * number + 1), ()))
        for worker in range(8):
            reason = f"{{number}} ".ljust(1_024, "名")
            name = f"h0:gpu{{8 * number % GPUS + worker}}"
            says(WorkerExited(name, "crashed", reason, None, False))
            says(Trouble(reason * 16))
            says(LogLines("h0:gpu0", (reason * 8,) * 30, 0.0))
        history.take(number + 1.0)
    print(peak_bytes() - before)
    await one.fleet.stop(0.1)

asyncio.run(main())
"""
OVERHEAD = 4
"""What Python takes for a byte of a message, at most."""


def grown_bytes(script: str) -> int:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def test_a_gigabyte_that_hosts_report_is_held_within_a_few_mebibytes() -> None:
    assert grown_bytes(SENDS) < 80 * 2**20


@pytest.mark.slow
def test_a_host_that_changes_all_it_says_without_end_is_held_within_its_budget() -> None:
    assert grown_bytes(LIES) < OVERHEAD * sum(KEPT_BYTES.values())


def test_what_a_head_keeps_of_a_host_is_bounded_in_all() -> None:
    assert sum(KEPT_BYTES.values()) < 12 * 2**20
