"""Run Dask's own tests on CuPy arrays, and dask-cuda's operations, on clusters of real GPUs.

`python -m tests.gpu [GPUS…]`, such as `python -m tests.gpu 0 0,1`, writes tests/gpu/RESULTS.md. A
last column says what passes in one process, with Dask alone.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

RESULTS = Path("tests/gpu/RESULTS.md")
SUITES = {
    f"dask.array, {part}": f"dask.array.tests.test_cupy_{part}"
    for part in (
        *("core", "creation", "gufunc", "linalg", "overlap", "percentile"),
        *("random", "reductions", "routines", "slicing", "sparse"),
    )
} | {"operations of dask-cuda's benchmark": "tests/gpu/test_operations.py"}
ALONE = ""
SAME_NAME = """\
Tests of linalg call every array "A". A scheduler that outlives a test takes a result of that name
that is still in memory: on `LocalCluster` the same tests fail by turns."""
BOUND_S = 400.0
TEST_S = 60


@dataclass(frozen=True)
class Ran:
    """How a suite went."""

    counts: Counter[str]
    failed: tuple[str, ...]

    def __str__(self) -> str:
        words = ("passed", "failed", "skipped", "expected to fail")
        return ", ".join(f"{self.counts[word]} {word}" for word in words if self.counts[word])


def main() -> None:
    """Run each suite on each cluster, all at once, and write the table."""
    clusters = [*(sys.argv[1:] or ["0", "0,1"]), ALONE]
    jobs = [(suite, gpus) for suite in SUITES for gpus in clusters]
    with ThreadPoolExecutor(6) as threads:
        ran = dict(
            zip(jobs, threads.map(lambda job: run(SUITES[job[0]], job[1]), jobs), strict=True)
        )
    lines = [f"| | {' | '.join(map(head, clusters))} | failed |"]
    lines.append("|---" * (len(clusters) + 2) + "|")
    for suite in SUITES:
        sides = [ran[suite, gpus] for gpus in clusters]
        failed = sorted({name for side in sides for name in side.failed})
        lines.append(f"| {suite} | {' | '.join(map(str, sides))} | {', '.join(failed) or '–'} |")
    print("\n".join(lines))
    packages = ", ".join(f"{each} {version(each)}" for each in ("dask", "distributed", "numpy"))
    RESULTS.write_text(f"""# On real GPUs, as seen

`python -m tests.gpu {" ".join(clusters[:-1])}`, {time.strftime("%Y-%m-%d")}: {gpu_names()}; CuPy \
{cupy_version()}, {packages}.
Each suite runs on a cluster of gputui's, through its client as Dask's default.
{SAME_NAME}

{chr(10).join(lines)}
""")


def head(gpus: str) -> str:
    """Return the head of a column.

    >>> head("0"), head("0,1"), head(ALONE)
    ('1 GPU', '2 GPUs', 'Dask alone')
    """
    count = len(gpus.split(","))
    return f"{count} GPU{'s' * (count > 1)}" if gpus else "Dask alone"


def run(suite: str, gpus: str) -> Ran:
    """Return how a suite goes on a cluster of these GPUs, or without one."""
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        report = Path(folder, "report.xml")
        what = (suite,) if suite.endswith(".py") else ("--pyargs", suite)
        options = ("-p", "tests.gpu.standing", "-c", os.devnull, f"--timeout={TEST_S}")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *what]
        with Path(folder, "said").open("w+") as said:
            try:
                subprocess.run(
                    command,
                    env={**os.environ, "GPUS": gpus, "XDG_RUNTIME_DIR": folder},
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    timeout=BOUND_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Ran(Counter(failed=1), (f"{suite}: no end within {BOUND_S:.0f} s",))
            said.seek(0)
            print(f"--- {suite} on {gpus}", said.read()[-6000:], sep="\n", flush=True)
        if not report.exists():
            return Ran(Counter(failed=1), (f"{suite} did not start",))
        cases = list(ElementTree.parse(report).iter("testcase"))
    outcomes = [_outcome(case) for case in cases]
    failed = [case.get("name", "") for case in cases if _outcome(case) == "failed"]
    return Ran(Counter(outcomes), tuple(failed))


def _outcome(case: ElementTree.Element) -> str:
    if {"failure", "error"} & {each.tag for each in case}:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "expected to fail" if skipped.get("type") == "pytest.xfail" else "skipped"


def gpu_names() -> str:
    """Return how many GPUs of which name this machine has."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    return ", ".join(f"{count} × {name}" for name, count in Counter(names).items())


def cupy_version() -> str:
    """Return CuPy's version, whichever distribution brings it."""
    import cupy

    return str(cupy.__version__)


if __name__ == "__main__":
    main()
