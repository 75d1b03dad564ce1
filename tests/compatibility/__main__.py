"""Run other people's suites on a standing cluster of each kind, and write the table.

`python -m tests.compatibility [--most N] [--bound S] [--add TITLE] [SUITE…]`

`RESULTS.md` is written from the start, or with `--add` a section at its end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.compatibility.standing import KINDS

HERE = "tests/compatibility"
RESULTS = Path(HERE, "RESULTS.md")
SUITES = {
    "dask-labextension": "dask_labextension.tests.test_manager",
    "dask.delayed": "dask.tests.test_delayed",
    "dask.bag": "dask.bag.tests",
    "dask.array": "dask.array.tests",
    "dask.dataframe": "dask.dataframe.tests",
    "expectations": f"{HERE}/test_expectations.py",
    "libraries": f"{HERE}/test_libraries.py",
}
"""Name → what pytest is to run: installed modules, or files of these tests."""

STARTING = ("dask-labextension",)
"""Those that start their clusters themselves."""

BOUND_S = 3600.0
PACKAGES = (
    *("dask", "distributed", "numpy", "pandas", "xarray", "scikit-learn", "joblib"),
    *("optuna", "optuna-integration", "xgboost", "dask-labextension", "dask-ml"),
)


@dataclass(frozen=True)
class Ran:
    """How a suite went on one kind of cluster."""

    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    elapsed_s: float = 0.0
    transitions: str = "–"

    def __str__(self) -> str:
        return f"{len(self.passed)}, {len(self.failed)}, {self.elapsed_s:.0f} s, {self.transitions}"


def main() -> None:
    """Run the suites named, or all, and print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility")
    parser.add_argument("--most", type=int, default=100, help="tests of each suite of Dask's")
    parser.add_argument("--bound", type=int, default=60, help="seconds for each of those")
    parser.add_argument("--add", metavar="TITLE", help="keep RESULTS.md, and add this section")
    parser.add_argument("suites", nargs="*", help=", ".join(SUITES))
    given = parser.parse_args()
    cells = "passed, failed, time, transitions of tasks"
    before = (
        f"{RESULTS.read_text()}\n## {given.add}" if given.add else "# Compatibility, as measured"
    )
    lines = [
        f"| suite | LocalCluster: {cells} | GPUCluster: the same | fails on GPUCluster only |",
        "|---|---|---|---|",
    ]
    total = dict.fromkeys(KINDS, 0.0)
    for name in given.suites or SUITES:
        ran = {kind: run(name, kind, given.most, given.bound) for kind in KINDS}
        only = sorted(ran["GPUCluster"].failed - ran["LocalCluster"].failed)
        sides = " | ".join(str(ran[kind]) for kind in KINDS)
        lines.append(f"| {name} | {sides} | {', '.join(only) or '–'} |")
        for kind in KINDS:
            total[kind] += ran[kind].elapsed_s
        print(lines[-1], flush=True)
        text = section(lines, total, given.most, given.bound)
        RESULTS.write_text(f"{before}\n\n{text}")


def section(lines: list[str], total: dict[str, float], most: int, bound_s: int) -> str:
    """Return the table as far as it has come, and how it was made."""
    theirs, ours = total.values()
    today = time.strftime("%Y-%m-%d")
    return f"""{today}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}. {versions()}.
Of each of Dask's suites up to {most} tests, chosen by a checksum of their names and the same for
both, with a bound of {bound_s} s each, and none that is slow or uses a network; `--most 10000`
runs all.

{chr(10).join(lines)}

In all {theirs:.0f} s and {ours:.0f} s: {ours / theirs:.2f} times as long.
"""


def run(name: str, kind: str, most: int, bound_s: int) -> Ran:
    """Return how a suite goes with the client of such a cluster as Dask's default."""
    plugin = ("-p", "tests.compatibility.standing", "-c", os.devnull)
    standing = (*plugin, "--pyargs", f"--timeout={bound_s}")
    suite = SUITES[name]
    chosen = () if suite.startswith(HERE) else standing
    with tempfile.TemporaryDirectory() as folder:
        report, transitions = Path(folder, "report.xml"), Path(folder, "transitions")
        environ = {
            "COMPATIBILITY_CLUSTER": kind,
            "COMPATIBILITY_MOST": str(most),
        }
        if name not in STARTING:
            environ["COMPATIBILITY_TRANSITIONS"] = str(transitions)
        started = time.monotonic()
        try:
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *chosen, suite],
                env={**os.environ, **environ},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=BOUND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(failed=frozenset({"it did not end"}), elapsed_s=BOUND_S)
        elapsed_s = time.monotonic() - started
        if not report.exists():
            return Ran(failed=frozenset({"it did not start"}), elapsed_s=elapsed_s)
        cases = list(ElementTree.parse(report).iter("testcase"))
        counted = transitions.read_text() if transitions.exists() else "–"
    bad = {_name(c) for c in cases if {"failure", "error"} & {e.tag for e in c}}
    skipped = {_name(c) for c in cases if c.find("skipped") is not None}
    passed = frozenset({_name(c) for c in cases} - bad - skipped)
    return Ran(passed, frozenset(bad), elapsed_s, counted)


def versions() -> str:
    """Return what was installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"


if __name__ == "__main__":
    main()
