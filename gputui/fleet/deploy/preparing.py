"""Runs on a host, sent there on stdin: makes gputui's own environment there, with its packages.

Reads one JSON line, the order; prints a JSON line for everything that happens, `{"line": …}`,
and at the end `{"done": python}` or `{"failed": why, "hint": …}`. Any Python 3.6 or later.
"""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn


def main() -> None:
    """Carry out the order on stdin."""
    order = json.loads(io.FileIO(0, closefd=False).readline().decode())
    environment = Path(order["environment"]).expanduser()
    python = environment / "bin" / "python"
    uv = shutil.which("uv") or shutil.which(str(Path("~/.local/bin/uv").expanduser()))
    if version_of(python) != order["version"]:
        make(environment, order["version"], uv)
    packages = list(order["packages"])
    if order["gpus"]:
        packages += cupy(order["cupy"])
    install = [str(python), "-m", "pip", "install", "--progress-bar", "off"]
    if uv:
        install = [uv, "pip", "install", "--python", str(python)]
    say(line="installing " + " ".join(packages))
    if run([*install, *packages]):
        fail("the packages could not be installed: see above")
    say(done=str(python))


def make(environment: Path, version: str, uv: "str | None") -> None:
    """Make a new environment of a minor version of Python, `3.11`, in place of any other."""
    base = interpreter(version)
    if uv:
        command = [uv, "venv", "--clear", "--python", base or version, str(environment)]
    elif base:
        command = [base, "-m", "venv", "--clear", str(environment)]
    else:
        fail(
            "no Python " + version + " there",
            "install Python " + version + " or uv (https://docs.astral.sh/uv) there",
        )
    say(line="making " + str(environment))
    environment.parent.mkdir(parents=True, exist_ok=True)
    if run(command):
        fail(
            "the environment could not be made: see above",
            "on Debian and Ubuntu: apt install python" + version + "-venv",
        )


def interpreter(version: str) -> str:
    """Return the path of a Python of that minor version; "" where there is none."""
    for name in (sys.executable, "python" + version, "python3"):
        path = shutil.which(name)
        if path and version_of(Path(path)) == version:
            return path
    return ""


def version_of(python: Path) -> str:
    """Return an interpreter's minor version; "" where it does not run."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([str(python), "-c", ask], stdout=subprocess.PIPE)
    except OSError:
        return ""
    return done.stdout.decode().strip()


def cupy(version: str) -> "list[str]":
    """Return what to install for the NVIDIA driver here; nothing without one."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        say(line="no NVIDIA driver: without CuPy")
        return []
    said = subprocess.run([smi], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    match = re.search(r"CUDA Version: (\d+)", said.decode("utf-8", "replace"))
    family = "13" if match and int(match.group(1)) >= 13 else "12"
    return ["cupy-cuda" + family + "x[ctk]" + ("==" + version if version else "")]


def run(command: "list[str]") -> int:
    """Run a command, telling every line it prints; returns its exit status."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout
    for line in process.stdout:
        say(line=line.decode("utf-8", "replace").rstrip())
    return process.wait()


def say(**what: Any) -> None:
    """Print a JSON line."""
    print(json.dumps(what), flush=True)


def fail(why: str, hint: str = "") -> NoReturn:
    """Tell why it cannot be done, and end."""
    say(failed=why, hint=hint)
    raise SystemExit(1)


if __name__ == "__main__":
    main()
