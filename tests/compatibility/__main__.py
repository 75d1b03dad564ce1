"""Run other people's suites on a standing cluster of each kind, and write the table.

`python -m tests.compatibility [--minutes M] [--bound S]` runs the whole and writes `RESULTS.md`.
Dask's own suites go by rounds, each of which has tests of every module; with `--minutes` they stop
after so many, and the table says how far they came. All is kept in a file as it happens:
`--from FILE` writes the table of one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.compatibility.standing import KINDS, ROUNDS

HERE = "tests/compatibility"
RESULTS = Path(HERE, "RESULTS.md")
DASKS = {
    "dask.delayed": "dask.tests.test_delayed",
    "dask.bag": "dask.bag.tests",
    "dask.array": "dask.array.tests",
    "dask.dataframe": "dask.dataframe",
}
"""Suites of Dask's own: name → what pytest is to run."""

OTHERS = {
    "dask-labextension": ("--pyargs", "dask_labextension.tests.test_manager"),
    "expectations": (f"{HERE}/test_expectations.py",),
    "libraries": (f"{HERE}/test_libraries.py",),
}
"""Suites that start their clusters themselves."""

BOUND_S = 3600.0
PACKAGES = (
    *("dask", "distributed", "numpy", "pandas", "xarray", "scikit-learn", "joblib"),
    *("optuna", "optuna-integration", "xgboost", "dask-labextension", "dask-ml"),
)


@dataclass
class Ran:
    """How a suite went on one kind of cluster."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    elapsed_s: float = 0.0

    def __str__(self) -> str:
        return f"{len(self.passed)}, {len(self.failed)}, {self.elapsed_s:.0f} s"


Table = dict[str, dict[str, Ran]]
"""Suite → kind of cluster → how it went."""


def main() -> None:
    """Run the suites, and print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for Dask's suites")
    parser.add_argument("--bound", type=int, default=60, help="seconds for each of their tests")
    parser.add_argument("--from", dest="file", type=Path, help="write the table of this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = given.file or Path(folder, "results")
        if given.file is None:
            run_dasks(file, given.minutes, given.bound)
        text, table = dasks_table(file)
    table |= {name: {kind: run(name, kind) for kind in KINDS} for name in OTHERS}
    text = f"{heading()}\n{text}\n\n{in_markdown(table)}\n"
    print(text)
    RESULTS.write_text(text)


def heading() -> str:
    """Return when and on what this was."""
    return f"""# Compatibility, as measured

{time.strftime("%Y-%m-%d")}, {os.cpu_count()} cores. {versions()}.
"""


def in_markdown(table: Table) -> str:
    """Return the table, with the tests that fail on our side only under it."""
    cells = "passed, failed, time"
    lines = [f"| suite | LocalCluster: {cells} | GPUCluster: the same | fails there only |"]
    lines.append("|---|---|---|---|")
    total = dict.fromkeys(KINDS, 0.0)
    for name, sides in table.items():
        only = sorted(sides["GPUCluster"].failed - sides["LocalCluster"].failed)
        columns = " | ".join(str(sides[kind]) for kind in KINDS)
        lines.append(f"| {name} | {columns} | {', '.join(only) or '–'} |")
        for kind in KINDS:
            total[kind] += sides[kind].elapsed_s
    theirs, ours = total.values()
    both = sorted(set[str]().union(*(set.intersection(*_failed(each)) for each in table.values())))
    lines += ["", f"In all {theirs:.0f} s and {ours:.0f} s: {ours / theirs:.2f} times as long."]
    return "\n".join([*lines, "", "Failed on both:", "", *(f"- {test}" for test in both)])


def _failed(sides: dict[str, Ran]) -> list[set[str]]:
    return [ran.failed for ran in sides.values()]


def run_dasks(file: Path, minutes: float, bound_s: int) -> None:
    """Run Dask's suites on both, each test on either kind right after the other."""
    plugin = ("-p", "tests.compatibility.standing", "-c", os.devnull, f"--timeout={bound_s}")
    environ = {"COMPATIBILITY_RESULTS": str(file), "COMPATIBILITY_MINUTES": str(minutes)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "--pyargs", *DASKS.values()],
        env={**os.environ, **environ},
        check=False,
    )


def dasks_table(file: Path) -> tuple[str, Table]:
    """Return what was run, in words, and how it went."""
    records = [json.loads(line) for line in file.read_text().splitlines()]
    table: Table = {name: {kind: Ran() for kind in KINDS} for name in DASKS}
    tests = {each["test"] for each in records if "test" in each}
    transitions = {each["kind"]: each["transitions"] for each in records if "transitions" in each}
    parts: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for each in records:
        if "test" in each:
            parts[each["kind"], each["test"]].append(each)
    for (kind, test), reports in parts.items():
        ran = table[suite_of(test)][kind]
        outcomes = {each["outcome"] for each in reports}
        ran.elapsed_s += sum(float(each["elapsed_s"]) for each in reports)
        if "failed" in outcomes:
            ran.failed.add(short(test))
        elif "skipped" not in outcomes:
            ran.passed.add(short(test))
    return said(records[0]["rounds"], len(tests), transitions), table


def said(rounds: dict[str, int], tests: int, transitions: dict[str, int]) -> str:
    """Say which tests these were."""
    in_all, done, left = sum(rounds.values()), 0, tests
    for size in rounds.values():
        if left < size:
            break
        left, done = left - size, done + 1
    counted = " and ".join(f"{count:,} on {kind}" for kind, count in transitions.items())
    return f"""
Of Dask's {in_all:,} tests that are not slow and use no network, {tests:,} were run or skipped, each
on both right after each other: round r of {ROUNDS} has the tests r, r + {ROUNDS} … of every module,
and {done} rounds and {left} tests of the next were done. Tasks changed their state {counted}."""


def suite_of(test: str) -> str:
    """Return which suite of Dask's a test belongs to.

    >>> suite_of("/lib/dask/bag/tests/test_bag.py::test_a")
    'dask.bag'
    """
    folder = test.partition("::")[0].rpartition("/dask/")[2].split("/")[0]
    return "dask.delayed" if folder == "tests" else f"dask.{folder}"


def short(test: str) -> str:
    """Return a test's name without its folders.

    >>> short("lib/dask/bag/tests/test_bag.py::test_fold[1]")
    'test_bag::test_fold[1]'
    """
    module, _, name = test.partition("::")
    return f"{Path(module).stem}::{name}"


def run(name: str, kind: str) -> Ran:
    """Return how a suite goes that starts clusters of this kind itself."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        started = time.monotonic()
        options = ("-p", "tests.compatibility.kind") if "--pyargs" in OTHERS[name] else ()
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *OTHERS[name]],
            env={**os.environ, "COMPATIBILITY_CLUSTER": kind},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=BOUND_S,
            check=False,
        )
        elapsed_s = time.monotonic() - started
        return Ran(*of_cases(ElementTree.parse(report).iter("testcase")), elapsed_s)


def of_cases(cases: Iterable[ElementTree.Element]) -> tuple[set[str], set[str]]:
    """Return which tests of a report passed, and which failed."""
    passed, failed = set(), set()
    for case in cases:
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
        if {"failure", "error"} & {each.tag for each in case}:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return passed, failed


def versions() -> str:
    """Return what was installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


if __name__ == "__main__":
    main()
