"""A sample of the suites with other releases of Dask, and what of Dask's is private.

    python -m tests.compatibility.versions oldest main

`oldest` is the least release that pyproject.toml takes, `main` what Dask and distributed have on
GitHub now; a number is that release. For each, dask and distributed are put before those that are
installed here, and a GPUCluster goes through what Dask's own tests expect. Then every private part
of a library that gputui uses is listed, with what stands in where it is gone. The exit status is 1
where a test failed.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from packaging.requirements import Requirement

from tests.compatibility.__main__ import of_cases
from tests.test_private_uses import PRIVATE

ROOT = Path(__file__).parents[2]
PACKAGES = ("dask", "distributed")
SAMPLE = ("tests/compatibility/test_expectations.py", "tests/test_overrides.py")
BOUND_S = 1800.0


def main(releases: list[str]) -> int:
    """Try each release, and list what is private; returns whether a test failed."""
    passed = [sample(release) for release in releases]
    for kind, names in PRIVATE.items():
        print(f"\n{kind}")
        for name, instead in names.items():
            print(f"  {name:<52} {instead}")
    return int(not all(passed))


def wanted(release: str) -> list[str]:
    """Return the packages of a release, as pip takes them."""
    if release == "main":
        return [f"git+https://github.com/dask/{name}" for name in PACKAGES]
    return [f"{name}=={oldest() if release == 'oldest' else release}" for name in PACKAGES]


def oldest() -> str:
    """Return the least release of distributed that gputui takes.

    >>> oldest() >= "2026.7.1"
    True
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (needed,) = [
        each for each in map(Requirement, project["dependencies"]) if each.name == "distributed"
    ]
    return next(spec.version for spec in needed.specifier if spec.operator == ">=")


def sample(release: str) -> bool:
    """Run the sample with a release, and print a line; returns whether all of it passed."""
    with tempfile.TemporaryDirectory() as name:
        folder, report = Path(name, "packages"), Path(name, "report.xml")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*install, "--target", str(folder), *wanted(release)], capture_output=True, text=True
        )
        if done.returncode:
            print(f"{release}: not installed:\n{done.stderr.strip()}", flush=True)
            return False
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", "", f"--junitxml={report}", *SAMPLE],
            env=os.environ | {"PYTHONPATH": str(folder), "COMPATIBILITY_CLUSTER": "GPUCluster"},
            stdout=subprocess.DEVNULL,
            timeout=BOUND_S,
            cwd=ROOT,
        )
        versions = sorted(path.name for path in folder.glob("*.dist-info"))
        passed, failed = of_cases(ElementTree.parse(report).iter("testcase"))
    what = ", ".join(each.removesuffix(".dist-info").replace("-", " ") for each in versions)
    print(f"{release} ({what}): {len(passed)} passed, {len(failed)} failed", flush=True)
    for each in sorted(failed):
        print(f"  {each}")
    return bool(passed) and not failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["oldest", "main"]))
