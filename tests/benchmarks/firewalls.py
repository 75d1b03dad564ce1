"""How fast arrays move between hosts, directly and through SSH.

    python -m tests.benchmarks.firewalls [MEBIBYTES]      # 256 by default

Two hosts are network namespaces of this machine, with an sshd each; root makes them. A row is a
cluster of one worker on each of two hosts, or on a host and on this machine: bytes a second of a
buffer from worker to worker, the median of both directions. Values travel as bytes, since all are
one machine. Ratios are how many times as fast the direct way is.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.sshd import Namespaces, running_namespaces

WORKER = "gpus=none workers=1 nthreads=1 memory=2GiB"
DIRECT, THROUGH_SSH = "tunnel=false", "tunnel=true"


def main() -> None:
    """Print the table."""
    mebibytes = sys.argv[1] if len(sys.argv) > 1 else "256"
    print(f"{'':44} {'direct':>12} {'through SSH':>12} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder, running_namespaces(Path(folder), 2) as hosts:
        first, second = (host.name for host in hosts.hosts)
        for title, names in (
            ("this machine and a host", ("localhost", first)),
            ("two hosts", (first, second)),
        ):
            direct, there = (run(hosts, names, way, mebibytes) for way in (DIRECT, THROUGH_SSH))
            for what, key in (
                (f"{mebibytes} MiB", "largest_bytes_per_s"),
                ("16 MiB", "16_MiB_bytes_per_s"),
            ):
                one, other = (rate(result, key) for result in (direct, there))
                cells = f"{one / 1e6:>7.0f} MB/s {other / 1e6:>7.0f} MB/s {one / other:>6.2f}"
                print(f"{title + ', ' + what:44} {cells}")
            one, other = (latency(result) for result in (direct, there))
            cells = f"{1e3 * one:>9.1f} ms {1e3 * other:>9.1f} ms {other / one:>6.2f}"
            print(f"{title + ', 64 KiB':44} {cells}", flush=True)


def run(hosts: Namespaces, names: tuple[str, ...], way: str, mebibytes: str) -> dict[str, Any]:
    """Return the result of the preset `transfer` between workers of two hosts."""
    text = "".join(f"{name} {WORKER} {way}\n" for name in names)
    command = [sys.executable, "-m", "gputui", "-", "--run", "transfer", "--json", "--quiet"]
    environ = {**os.environ, **hosts.environment, "DASK_GPUTUI__TRANSFERS": "bytes"}
    done = subprocess.run(
        [*command, "-p", f"mebibytes={mebibytes}", "--name", "firewalls"],
        input=text,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def rate(result: dict[str, Any], key: str) -> float:
    """Return the median of a rate over all pairs of workers."""
    return statistics.median(pair[key] for pair in result["pairs"])


def latency(result: dict[str, Any]) -> float:
    """Return the median of what a small buffer took, in seconds."""
    return statistics.median(pair["64_KiB_s"] for pair in result["pairs"])


if __name__ == "__main__":
    main()
