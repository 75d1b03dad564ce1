"""Run other people's suites on a standing cluster of each kind, and write the table."""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

KINDS = ("LocalCluster", "GPUCluster")
STANDING = ("-p", "tests.compatibility.standing", "-c", os.devnull, "--pyargs", "--timeout=120")
SUITES: dict[str, tuple[str, ...]] = {
    "dask.bag": (*STANDING, "dask.bag.tests.test_bag"),
    "dask.delayed": (*STANDING, "dask.tests.test_delayed"),
    "dask.array: linalg": (*STANDING, "dask.array.tests.test_linalg"),
    "dask.array: overlap": (*STANDING, "dask.array.tests.test_overlap"),
    "dask.array: rechunk": (*STANDING, "dask.array.tests.test_rechunk"),
    "dask.array: random": (*STANDING, "dask.array.tests.test_random"),
    "dask.dataframe: shuffle": (*STANDING, "dask.dataframe.tests.test_shuffle"),
    "dask.dataframe: groupby": (*STANDING, "dask.dataframe.tests.test_groupby"),
    "libraries": ("tests/compatibility/test_libraries.py",),
}
"""Name → what pytest is to run; `python -m tests.compatibility NAME…` runs some of them."""


@dataclass(frozen=True)
class Ran:
    """How a suite went on one kind of cluster."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: int
    elapsed_s: float


def main(names: list[str]) -> None:
    """Run the suites named, or all, and print and write the table."""
    lines = [
        "| suite | LocalCluster: passed, failed, s | GPUCluster: the same | fails here only |",
        "|---|---|---|---|",
    ]
    total = dict.fromkeys(KINDS, 0.0)
    for name in names or SUITES:
        ran = {kind: run(SUITES[name], kind) for kind in KINDS}
        theirs, ours = (ran[kind] for kind in KINDS)
        only = sorted(ours.failed & theirs.passed)
        cells = [f"{len(r.passed)}, {len(r.failed)}, {r.elapsed_s:.0f}" for r in (theirs, ours)]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {', '.join(only) or '–'} |")
        for kind in KINDS:
            total[kind] += ran[kind].elapsed_s
        print(lines[-1], flush=True)
    ratio = total["GPUCluster"] / total["LocalCluster"]
    lines += ["", f"GPUCluster took {ratio:.2f} times as long as LocalCluster in all."]
    about = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {time.strftime('%Y-%m-%d')}"
    text = "\n".join(["# Compatibility, as measured", "", f"{about}", "", *lines, ""])
    Path(__file__).with_name("RESULTS.md").write_text(text)
    print(lines[-1])


def run(arguments: tuple[str, ...], kind: str) -> Ran:
    """Return how a suite goes with the client of such a cluster as Dask's default."""
    chosen = () if "--pyargs" in arguments else ("-k", kind)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments, *chosen],
            env={**os.environ, "COMPATIBILITY_CLUSTER": kind},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        elapsed_s = time.monotonic() - started
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = {
        _name(c, kind)
        for c in cases
        if c.find("failure") is not None or c.find("error") is not None
    }
    skipped = {_name(c, kind) for c in cases if c.find("skipped") is not None}
    passed = {_name(c, kind) for c in cases} - failed - skipped
    return Ran(frozenset(passed), frozenset(failed), len(skipped), elapsed_s)


def _name(case: ElementTree.Element, kind: str) -> str:
    return case.get("name", "").replace(f"[{kind}]", "")


if __name__ == "__main__":
    main(sys.argv[1:])
