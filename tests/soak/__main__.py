"""`python -m tests.soak --hours 1 --seed 7`: run, scale, cut, stall, kill and fill, at random.

Three hosts, each a network namespace with an sshd of its own (root is needed), carry one cluster
from the beginning to the end. After each act the cluster must come back to the workers it wants
and a run must give the same number as before. Small clusters of their own are killed while they
start and stop. What grows is measured after each run, and compared with the same runs on a plain
`LocalCluster`. Ends with 1 at the first thing that is not as it must be, and says which act, with
which seed and step, led to it.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak.acts import ACTS, Act
from tests.soak.growth import Growth, plain_growth, table
from tests.soak.lab import Lab, SoakError, running_lab


def main() -> int:
    """Soak for so long, and print what was done and what grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, default=1.0)
    length.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, running_lab(Path(folder)) as lab:
        done, growth = Counter[str](), Growth()
        try:
            minutes = options.minutes or options.hours * 60
            soak(lab, random.Random(options.seed), minutes * 60, done, growth)
        except SoakError as failure:
            print(f"failed: {failure}", flush=True)
            return 1
        runs = growth.runs
    print("\n".join(f"{count:>5} × {name}" for name, count in done.most_common()))
    print(table(growth.per_run(), plain_growth(min(runs, 200))), flush=True)
    return 0


def soak(
    lab: Lab, rng: random.Random, duration_s: float, done: "Counter[str]", growth: Growth
) -> None:
    """Do one act after another until the time is over; raises SoakError."""
    end = time.monotonic() + duration_s
    step = 0
    while time.monotonic() < end:
        step += 1
        act = choose(rng)
        began = time.monotonic()
        try:
            act.do(lab, rng)
            lab.settle()
            lab.run()
        except SoakError as failure:
            raise SoakError(f"step {step}, {act.name}: {failure}") from failure
        done[act.name] += 1
        growth.add(lab.sizes())
        print(f"{step:>5} {act.name}: {time.monotonic() - began:.1f} s", flush=True)


def choose(rng: random.Random) -> Act:
    """Return an act, the common ones more often."""
    return rng.choices(ACTS, [act.weight for act in ACTS])[0]


if __name__ == "__main__":
    sys.exit(main())
