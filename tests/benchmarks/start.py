"""How long a cluster takes from the start of the process to the end of the last one.

    python -m tests.benchmarks.start                # words, local workers, SSH hosts
    python -m tests.benchmarks.start --gpus 8       # the GPUs of this machine; no network, no sshd

Both sides of a table are commands of their own, run in turn, each until nothing is left of it.
The work is a small `random-sum` with a chunk for each of four workers.
"""

import argparse
import json
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.benchmarks.peers import SIZE
from tests.benchmarks.sides import Side, Times, compare, interleaved, own_folders, row

WORKERS = 4
RUN = ("--run", "random-sum", "-p", f"size={SIZE}", "--quiet")
GPUTUI = (sys.executable, "-m", "gputui")
PEERS = (sys.executable, "-m", "tests.benchmarks.peers")
COMPLETED = (
    *("gputui att", "gputui --rea", "gputui --run sv", "gputui --run svd -p ro"),
    *("gputui --attach la", "gputui runs show la", "gputui up gpu-a"),
)
MISTAKES = "gpu-a gpu=1\ngpu-b:x\n\ngpu-c workers=many\n"


def main() -> None:
    """Measure what was asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--gpus", type=int, default=0, help="so many of this machine, only")
    parser.add_argument("--only", choices=("words", "local", "ssh"))
    arguments = parser.parse_args()
    with own_folders() as folder:
        if arguments.gpus:
            gpus(arguments.gpus, arguments.repeats)
            return
        for name, table in (("words", words), ("local", local), ("ssh", ssh)):
            if arguments.only in (name, None):
                table(arguments.repeats, folder)


def words(repeats: int, folder: Path) -> None:
    """Print what it takes to be told something, without any cluster."""
    row("words, medians", "time", "CPU", "bar")
    hosts = folder / "hosts.txt"
    hosts.write_text(MISTAKES)
    sides = (
        Side("gputui --help", (*GPUTUI, "--help")),
        Side("a hosts file with three mistakes", (*GPUTUI, str(hosts), *RUN), status=2),
        Side("an unknown preset", (*GPUTUI, "--run", "sdv"), status=2),
        Side("import gputui", (sys.executable, "-c", "import gputui")),
        *(Side(f"tab after {line!r}", GPUTUI, completing(line)) for line in COMPLETED),
    )
    for side, times in zip(sides, interleaved(sides, repeats), strict=True):
        bar_s = 0.05 if side.name.startswith("import") else 0.15 if side.environ else 0.25
        time_s = statistics.median(each.ended_s for each in times)
        cpu_s = statistics.median(each.cpu_s for each in times)
        row(side.name, f"{time_s:.3f} s", f"{cpu_s:.3f} s", f"≤ {bar_s:.3f} s")


def completing(line: str) -> dict[str, str]:
    """Return what a shell sets to have the last word of a line completed."""
    at = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return {"_GPUTUI_COMPLETE": "bash_complete", **at}


def local(repeats: int, _: Path) -> None:
    """Print four local workers against LocalCluster."""
    ours, peer = interleaved(
        (
            Side("gputui", (*GPUTUI, f"localhost gpus=none workers={WORKERS} nthreads=1", *RUN)),
            Side("LocalCluster", (*PEERS, "local", str(WORKERS))),
        ),
        repeats,
    )
    _table(f"{WORKERS} local workers", "LocalCluster", ours, peer, 1.1)


def ssh(repeats: int, folder: Path) -> None:
    """Print one worker on each of four SSH hosts against SSHCluster."""
    from tests.sshd import running_sshd

    with running_sshd(folder, WORKERS) as hosts:
        described = [
            {
                "host": host.address,
                "connect": {
                    "port": host.port,
                    "username": host.user,
                    "client_keys": [str(hosts.client_key)],
                    "known_hosts": str(hosts.known_hosts),
                    "config": None,
                },
            }
            for host in hosts.hosts
        ]
        text = hosts.text("gpus=none workers=1 nthreads=1").replace("\n", ";")
        marks = (f"HOME={folder}",)
        ours, peer = interleaved(
            (
                Side("gputui", (*GPUTUI, text, *RUN), hosts.environment, marks=marks),
                Side("SSHCluster", (*PEERS, "ssh"), stdin=json.dumps(described), marks=marks),
            ),
            repeats,
        )
    _table(f"a worker on each of {WORKERS} SSH hosts", "SSHCluster", ours, peer, 0.65)


def gpus(count: int, repeats: int) -> None:
    """Print a CuPy result from each GPU against LocalCUDACluster."""
    ours, peer = interleaved(
        (
            Side("gputui", (*PEERS, "gputui", str(count))),
            Side("LocalCUDACluster", (*PEERS, "gpus", str(count))),
        ),
        repeats,
    )
    peer_name = "LocalCUDACluster" if find_spec("dask_cuda") else "stand-in"
    if peer_name == "stand-in":
        print("dask-cuda is not installed: a LocalCluster with a GPU for each process stands in")
    _head(f"{count} GPUs", peer_name)
    compare("start → all workers registered", ours, peer, lambda t: t.line_s("registered"), 0.25)
    compare("start → a CuPy result from each", ours, peer, lambda t: t.line_s("result"), 0.75)
    compare("start → everything gone", ours, peer, lambda t: t.gone_s)


def _table(what: str, peer_name: str, ours: list[Times], peer: list[Times], bar: float) -> None:
    _head(what, peer_name)
    compare("start → result", ours, peer, Times.line_s)
    compare("start → the command has ended", ours, peer, lambda times: times.ended_s)
    compare("start → everything gone", ours, peer, lambda times: times.gone_s, bar)


def _head(what: str, peer_name: str) -> None:
    row(f"\n{what}, medians", "gputui", peer_name, "ratio", "bar")


if __name__ == "__main__":
    main()
