"""The wheel in empty environments: every Python that is installed here, least and newest packages.

    python -m tests.installing                # builds, installs, and prints the table
    python -m tests.installing --only 3.12    # of one minor version

Needs `uv`, and an index to install from. For each row, with the wheel in a folder that `uv` looks
into: `uvx gputui --demo 4x8` until its GPUs are seen, with an empty cache of packages, then with a
full one and the CPU that it took; `uv tool install gputui`; and a small run on this machine's CPUs.
Everything is made in a folder that is removed. The exit status is 1 where a row failed.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import cpu_of_children_s
from tests.terminals import Emulated

ROOT = Path(__file__).parents[1]
NEWEST = "highest"
LEAST = "lowest-direct"
"""uv's words for the versions of what pyproject.toml names."""
SEEN = "8×H200"
"""What the screen of the demo shows of its hosts."""
LIMITS_S = {"cold": 60.0, "warm": 3.0}
PYTHONS = ("/usr/bin/python3.??", "/usr/local/bin/python3.??", "/opt/*/bin/python3.??")
UNDER_HOME = (".pyenv/versions/*/bin/python3.??", ".local/share/uv/python/*/bin/python3.??")
WANTED = ("3.11", "3.12", "3.13", "3.14")
NAMED = ("dask", "distributed", "textual", "asyncssh", "numpy", "click")


@dataclass(frozen=True, slots=True)
class Empty:
    """An environment that has nothing but uv, and the folder with the wheel."""

    folder: Path
    uv: str

    @property
    def environ(self) -> dict[str, str]:
        """Its variables: nothing of the user's is read or written."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        runtime = self.folder / "run"
        runtime.mkdir(mode=0o700, exist_ok=True)
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(runtime),
            "UV_CACHE_DIR": str(self.folder / "cache"),
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            **{name: os.environ[name] for name in os.environ if name.startswith("SSL_CERT")},
        }

    def uv_tool(self, verb: str, python: str, pins: Path) -> list[str]:
        """Return the command that installs gputui from the wheel alone, with these packages."""
        chosen = ["--python", python, "--constraints", str(pins), "--no-build"]
        return [self.uv, "tool", verb, *chosen, "--find-links", str(self.folder / "dist"), "gputui"]

    def pins(self, python: str, resolution: str) -> Path:
        """Return a file with the versions to install."""
        path = self.folder / f"{Path(python).name}-{resolution}.txt"
        path.unlink(missing_ok=True)  # else uv keeps the versions that it lists
        chosen = ["--quiet", "--resolution", resolution, "--python", python, "--no-build"]
        self.run(self.uv, "pip", "compile", *chosen, "-o", str(path), str(ROOT / "pyproject.toml"))
        return path

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise RuntimeError(" ".join([f"exit {done.returncode}:", *last]))
        return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="3.N", help="this version of Python alone")
    only = parser.parse_args().only
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("needs uv: pip install uv")
    found = {version: path for version, path in pythons() if only in (None, minor(version))}
    print("Python   packages   cold    warm     CPU    tool     run  with")
    folder = Path(tempfile.mkdtemp(prefix="gputui-install-"))
    try:
        empty = Empty(folder, uv)
        empty.run(uv, "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(ROOT))
        passed = [
            row(empty, version, path, resolution)
            for version, path in sorted(found.items())
            for resolution in (LEAST, NEWEST)
        ]
    finally:
        shutil.rmtree(folder)
    missing = sorted({*WANTED} - {minor(version) for version in found}) if only is None else []
    print(f"not run, for they are not installed here: {', '.join(missing) or 'none'}")
    return int(not passed or not all(passed))


def minor(version: str) -> str:
    """Return 3.11 of 3.11.7."""
    return version.rpartition(".")[0]


def pythons() -> Iterator[tuple[str, str]]:
    """Yield each Python from 3.11 on that is installed here: its version, its path."""
    patterns = (*PYTHONS, *(str(Path.home() / each) for each in UNDER_HOME))
    for pattern in patterns:
        for path in sorted(Path("/").glob(pattern.removeprefix("/"))):
            asked = [str(path), "-c", "import platform; print(platform.python_version())"]
            version = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
            if re.fullmatch(r"3\.\d+\.\d+", version) and int(version.split(".")[1]) >= 11:
                yield version, str(path)


def row(empty: Empty, version: str, python: str, resolution: str) -> bool:
    """Try one Python with one choice of packages, and print the row; returns whether it passed."""
    head = f"{version:<8} {'least' if resolution == LEAST else 'newest':<8}"
    tools = f"{empty.folder}/tools-{version}-{resolution}"
    variables = [f"UV_TOOL_DIR={tools}", f"UV_TOOL_BIN_DIR={tools}/bin"]
    try:
        pins = empty.pins(python, resolution)
        shutil.rmtree(empty.folder / "cache", ignore_errors=True)
        command = empty.uv_tool("run", python, pins)
        cold_s, _ = demo_s(empty, command)
        warm_s, warm_cpu_s = demo_s(empty, command)
        begun = time.monotonic()
        empty.run("env", *variables, *empty.uv_tool("install", python, pins))
        tool_s = time.monotonic() - begun
        begun = time.monotonic()
        empty.run(f"{tools}/bin/gputui", "--run", "random-sum", "-p", "size=1000")
        run_s = time.monotonic() - begun
        listed = empty.run(empty.uv, "pip", "freeze", "--python", f"{tools}/gputui/bin/python")
    except (AssertionError, RuntimeError) as error:
        print(f"{head}  FAILED: {error}", flush=True)
        return False
    with_ = dict(line.split("==") for line in listed.splitlines() if "==" in line)
    times = "  ".join(f"{each:4.1f} s" for each in (cold_s, warm_s, warm_cpu_s, tool_s, run_s))
    print(f"{head}  {times}  {', '.join(f'{name} {with_[name]}' for name in NAMED)}", flush=True)
    return cold_s <= LIMITS_S["cold"] and warm_s <= LIMITS_S["warm"]


def demo_s(empty: Empty, command: list[str]) -> tuple[float, float]:
    """Return the seconds until the demo's GPUs are seen, and the CPU's until it has ended."""
    begun, used_s = time.monotonic(), cpu_of_children_s()
    screen = Emulated.start(*command, "--demo", "4x8", env=empty.environ, cells=(120, 40))
    try:
        screen.sees(SEEN)
        seen_s = time.monotonic() - begun
        os.kill(screen.pid, signal.SIGTERM)
        screen.close()
        return seen_s, cpu_of_children_s() - used_s
    finally:
        screen.kill()


if __name__ == "__main__":
    sys.exit(main())
