"""What is done to the cluster: work, changes, and everything that goes wrong, by chance."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gputui.head.scheduler_process import DEATHS
from tests.soak.lab import LEASE_S, NAME, WORKERS_A_HOST, Lab, SoakError

GONE_S = LEASE_S + 10
"""After any death nothing is left within lease + 10 s."""
LOCAL = "localhost gpus=none workers=1 nthreads=1 memory=512MiB"
SCALE = (
    "import sys, gputui\n"
    "with gputui.connect(sys.argv[1]) as cluster: cluster.scale(int(sys.argv[2]))"
)
SCRIPT = "from distributed import Client\nprint(Client().submit(sum, [1, 2]).result())\n"


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do, and how often in proportion to the others."""

    do: Callable[[Lab, random.Random], None]
    weight: int = 1

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.do.__name__.replace("_", " ")


def nothing_but_a_run(lab: Lab, rng: random.Random) -> None:
    """The work itself follows every act."""


def a_script(lab: Lab, rng: random.Random) -> None:
    path = lab.gputui.folder / "script.py"
    path.write_text(SCRIPT)
    if lab.command("--attach", NAME, "--run", str(path), "--quiet").strip() != "3":
        raise SoakError("a script computed something else")


def scaling(lab: Lab, rng: random.Random) -> None:
    lab.wanted = rng.randint(1, 3 * WORKERS_A_HOST)
    scale(lab, lab.wanted)


def a_killed_worker(lab: Lab, rng: random.Random) -> None:
    lab.kill(rng.choice(lab.pids("worker")))


def a_killed_forkserver(lab: Lab, rng: random.Random) -> None:
    lab.kill(rng.choice(lab.pids("forkserver")))


def a_killed_agent(lab: Lab, rng: random.Random) -> None:
    lab.kill(rng.choice(lab.pids("agent")))


def a_killed_relay(lab: Lab, rng: random.Random) -> None:
    lab.kill(rng.choice(lab.pids("relay")))


def a_killed_scheduler(lab: Lab, rng: random.Random) -> None:
    """Not oftener than a cluster takes: it ends with the fourth death within a minute."""
    lab.schedulers_killed = [at for at in lab.schedulers_killed if time.time() - at < 70.0]
    if len(lab.schedulers_killed) == DEATHS:
        return
    lab.schedulers_killed.append(time.time())
    (pid,) = lab.pids("scheduler")
    lab.kill(pid)
    lab.wait(lambda: pid not in lab.pids("scheduler"), 10)


def a_stopped_worker(lab: Lab, rng: random.Random) -> None:
    stall(lab, rng.choice(lab.pids("worker")), rng.uniform(1, 8))


def a_stopped_agent(lab: Lab, rng: random.Random) -> None:
    stall(lab, rng.choice(lab.pids("agent")), rng.uniform(1, 2 * LEASE_S))


def a_stopped_head(lab: Lab, rng: random.Random) -> None:
    stall(lab, lab.pids("head")[0], rng.uniform(1, LEASE_S / 2))


def a_cut_host(lab: Lab, rng: random.Random) -> None:
    host = lab.host(rng)
    lab.hosts.cut(host)
    time.sleep(rng.uniform(0.5, 2 * LEASE_S))
    lab.hosts.mend(host)


def a_host_that_hears_and_is_not_heard(lab: Lab, rng: random.Random) -> None:
    """What it sends goes to an Ethernet address that nobody has."""
    host = lab.host(rng)
    neighbour = f"neigh {{}} {lab.hosts.head_address} dev eth0"
    lab.hosts.ip(host, f"{neighbour.format('replace')} lladdr 02:00:00:00:00:01")
    time.sleep(rng.uniform(0.5, 2 * LEASE_S))
    lab.hosts.ip(host, neighbour.format("del"))


def a_kill_while_scaling(lab: Lab, rng: random.Random) -> None:
    lab.wanted = rng.randint(1, 3 * WORKERS_A_HOST)
    victim = rng.choice(lab.pids(rng.choice(["worker", "agent", "forkserver"])))
    scaler = lab.gputui.start("--attach", NAME, "--run", "smoke", "--quiet")
    scale(lab, lab.wanted)
    time.sleep(rng.uniform(0, 0.5))
    lab.kill(victim)
    scaler.communicate(timeout=120)


def a_full_disk(lab: Lab, rng: random.Random) -> None:
    with full_disk(lab):
        lab.kill(rng.choice(lab.pids("worker")))
        time.sleep(rng.uniform(0, 3))


def a_small_cluster_killed_at_some_moment(lab: Lab, rng: random.Random) -> None:
    """Its command is ended while it starts, runs or stops."""
    command = lab.gputui.start(LOCAL, "--run", "smoke", "--name", "small", "--quiet")
    time.sleep(rng.uniform(0, 4))
    command.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
    command.communicate(timeout=60)
    no_small_cluster(lab)


def a_head_killed_at_some_moment(lab: Lab, rng: random.Random) -> None:
    """One of a cluster of its own, while it starts or runs; its name is free afterwards."""
    command = lab.gputui.start("up", LOCAL, "--name", "small")
    lab.wait(lambda: command.poll() is not None or heads(lab), 30)
    time.sleep(rng.uniform(0, 2))
    for pid in heads(lab):
        lab.kill(pid)
    command.communicate(timeout=60)
    no_small_cluster(lab)
    up_and_down(lab, rng)


def up_and_down(lab: Lab, rng: random.Random) -> None:
    lab.command("up", LOCAL, "--name", "small")
    lab.command("down", "small")
    no_small_cluster(lab)


def scale(lab: Lab, workers: int) -> None:
    """Want this many workers; raises SoakError where the head refuses."""
    done = subprocess.run(
        [sys.executable, "-c", SCALE, NAME, str(workers)],
        env={**os.environ, **lab.gputui.env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode:
        raise SoakError(f"scaling to {workers}: {done.stderr}")


def stall(lab: Lab, pid: int, for_s: float) -> None:
    """Stop a process, and let it go on."""
    lab.kill(pid, signal.SIGSTOP)
    time.sleep(for_s)
    lab.kill(pid, signal.SIGCONT)


@contextmanager
def full_disk(lab: Lab) -> Iterator[None]:
    """Fill the disk of the hosts' scratch folders."""
    filling = lab.scratch / "filling"
    with contextlib.suppress(OSError), filling.open("wb") as file:
        while True:
            file.write(bytes(2**20))
            file.flush()
    try:
        yield
    finally:
        filling.unlink(missing_ok=True)


def heads(lab: Lab) -> list[int]:
    """Return the heads of small clusters."""
    return [pid for parts in lab.small_clusters() for pid in parts["head"]]


def no_small_cluster(lab: Lab) -> None:
    """Wait until nothing of a small cluster is left."""
    lab.wait(lambda: not lab.small_clusters(), GONE_S, lambda: f"left: {lab.small_clusters()}")


ACTS = (
    Act(nothing_but_a_run, 4),
    Act(a_script, 2),
    Act(scaling, 3),
    Act(a_killed_worker, 2),
    Act(a_killed_forkserver),
    Act(a_killed_agent),
    Act(a_killed_relay, 2),
    Act(a_killed_scheduler),
    Act(a_stopped_worker),
    Act(a_stopped_agent),
    Act(a_stopped_head),
    Act(a_cut_host, 2),
    Act(a_host_that_hears_and_is_not_heard),
    Act(a_kill_while_scaling, 2),
    Act(a_full_disk),
    Act(a_small_cluster_killed_at_some_moment, 2),
    Act(a_head_killed_at_some_moment),
    Act(up_and_down),
)
