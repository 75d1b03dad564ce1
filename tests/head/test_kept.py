"""What hosts report is kept within a budget: the process does not grow, whatever they say."""

import subprocess
import sys

SENDS = """
import resource
from gputui.head.broadcasts import EventLog, LogRelay
from gputui.head.server import FrontendConnection
from gputui.model.snapshot import Severity
from gputui.protocol.shared import LogLines

def peak_bytes():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

class Following:
    logs = True
    def send(self, message):
        pass

events = EventLog(lambda event: None)
logs = LogRelay([Following()], lambda on: None)
before = peak_bytes()
for number in range(1_000):
    host = f"host{number % 200}"
    for part in range(20):
        events.tell(Severity.WARNING, f"{host}:gpu{part}", "x" * 500, f"{number} {part} " * 999)
    lines = tuple(f"{number} {part} ".ljust(8_000) for part in range(120))
    logs.printed(LogLines(f"{host}:gpu0", lines, 0.0))
print(peak_bytes() - before)
"""


def test_a_gigabyte_that_hosts_report_is_held_within_a_few_mebibytes() -> None:
    done = subprocess.run([sys.executable, "-c", SENDS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 80 * 2**20
