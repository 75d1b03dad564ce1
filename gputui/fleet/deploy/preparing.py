"""Runs on a host, sent there on stdin: makes gputui's own environment there, with its packages.

Reads one JSON line, the order; prints a JSON line for everything that happens, `{"line": …}`,
`{"send": "wheels"}` where it wants the wheels of the order, which then follow on stdin, and at the
end `{"done": python}` or `{"failed": why, "hint": …}`. Hosts that share a home make the environment
once: the others wait for a lock, and find it ready. Any Python 3.6 or later.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

READY = "gputui-ready.json"
"""In the environment: its installed packages, written once all are there."""
ROOM_BYTES = 2**26
"""With less, what failed has failed for that: pip alone takes as much as it unpacks."""
LOOK_EVERY_S = 0.2
PIECE_BYTES = 65536
UNREACHED = re.compile(
    "Max retries|Connection|connect|resolve|dns|timed out|error sending|No matching distribution",
    re.I,
)
"""What pip and uv print where they reach no index, or one without the package."""
SETTINGS = "~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf", "/etc/xdg/pip/pip.conf"


def main() -> None:
    """Carry out the order on stdin."""
    order = json.loads(sys.stdin.readline())
    environment = Path(order["environment"]).expanduser()
    environment.parent.mkdir(parents=True, exist_ok=True)
    wanted = {key: order[key] for key in ("version", "packages", "lock")}
    if order["gpus"] and not order["lock"]:
        wanted["packages"] = wanted["packages"] + cupy(order["cupy"])
    with alone(environment):
        there = ready(environment)
        same = all(there.get(key) == wanted[key] for key in ("version", "lock"))
        had = there["packages"] if same else []
        if same and set(wanted["packages"]) <= set(had):
            say(line=str(environment) + " is ready")
        else:
            names = {each.partition("==")[0] for each in wanted["packages"]}
            wanted["packages"] += [each for each in had if each.partition("==")[0] not in names]
            prepare(environment, order, wanted)
    say(done=str(environment / "bin" / "python"))


def prepare(environment: Path, order: "dict[str, Any]", wanted: "dict[str, Any]") -> None:
    """Make the environment, install the packages, and note them."""
    python = environment / "bin" / "python"
    note = environment / READY
    with contextlib.suppress(FileNotFoundError):
        note.unlink()
    uv = shutil.which("uv") or shutil.which(str(Path("~/.local/bin/uv").expanduser()))
    if version_of(python) != order["version"]:
        make(environment, order["version"], uv)
    install = [str(python), "-m", "pip", "install", "--progress-bar", "off"]
    if uv:
        install = [uv, "pip", "install", "--python", str(python)]
    if not order["builds"]:
        install += ["--only-binary", ":all:"]
    with tempfile.TemporaryDirectory(prefix="gputui-bootstrap-") as folder:
        if order["wheels"]:
            say(send="wheels")
            take_wheels(Path(folder), order["wheels"])
            install += ["--no-index", "--find-links", folder]
        threading.Thread(target=end_with_stdin, daemon=True).start()
        packages = wanted["packages"]
        if order["lock"]:
            lock = Path(folder) / "lock.txt"
            lock.write_text(order["lock"], encoding="utf-8")
            packages = ["--require-hashes", "-r", str(lock)]
        say(line="installing " + " ".join(packages))
        printed = run([*install, *packages], pip_environment(order))
        if printed is not None:
            hint = room_hint(environment) or hint_of(printed, order)
            fail("the packages could not be installed: see above", hint)
    note.write_text(json.dumps(wanted), encoding="utf-8")


def hint_of(printed: str, order: "dict[str, Any]") -> str:
    """Return the hint for packages that could not be installed, or ""."""
    if "No space left" in printed or "Disk quota" in printed:
        return "free some disk space there"
    if order["wheels"]:
        return "the folder of --wheels must hold every package, with what each needs"
    if not UNREACHED.search(printed):
        return ""
    named = [path for path in SETTINGS if Path(path).expanduser().exists()]
    named += [name for name in os.environ if name.startswith(("PIP_", "UV_"))]
    hint = "--index URL names an index that it reaches, --wheels FOLDER sends packages"
    if named and not order["host_settings"]:
        hint = "--host-pip-conf uses its own " + named[0] + "; " + hint
    return hint


def room_hint(path: Path) -> str:
    """Return that hardly any room is left on the disk of a path; "" where there is enough."""
    while not path.exists():
        path = path.parent
    disk = os.statvfs(str(path))
    if disk.f_bavail * disk.f_frsize > ROOM_BYTES and (disk.f_favail or not disk.f_files):
        return ""
    left = str(disk.f_bavail * disk.f_frsize >> 20)
    return "free some disk space there: " + left + " MiB are left on the disk of " + str(path)


@contextlib.contextmanager
def alone(environment: Path) -> "Iterator[None]":
    """Hold the lock of an environment; waits for another host that makes it.

    It is a folder, which one host alone can make on every file system: NFS may have no locks, or
    keep them from other hosts. It stays where its holder is killed or loses its power.
    """
    lock = Path(str(environment) + ".making")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    waits = False
    while True:
        with contextlib.suppress(FileExistsError):
            lock.mkdir()
            break
        if not waits:
            say(line="waiting for another host that makes it; if none does: rmdir " + str(lock))
        waits = True
        time.sleep(LOOK_EVERY_S)
    try:
        yield
    finally:
        lock.rmdir()


def ready(environment: Path) -> "dict[str, Any]":
    """Return the note of an environment that is complete; {} for any other."""
    try:
        noted = json.loads((environment / READY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def take_wheels(folder: Path, wheels: "list[dict[str, Any]]") -> None:
    """Read the wheels from stdin, and check them."""
    for wheel in wheels:
        digest = hashlib.sha256()
        with (folder / Path(wheel["name"]).name).open("wb") as file:
            for start in range(0, wheel["size"], PIECE_BYTES):
                data = sys.stdin.buffer.read(min(wheel["size"] - start, PIECE_BYTES))
                file.write(data)
                digest.update(data)
        if digest.hexdigest() != wheel["sha256"]:
            fail(wheel["name"] + " did not arrive as it was sent")


def end_with_stdin() -> None:
    """End this process once its client is gone, which sends nothing after the wheels."""
    while os.read(0, PIECE_BYTES):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


def pip_environment(order: "dict[str, Any]") -> "dict[str, str]":
    """Return the environment for pip and uv: without this host's own settings unless asked.

    An index may have a password in it, which has no place among arguments.
    """
    environ = dict(os.environ)
    if not order["host_settings"]:
        environ = {k: v for k, v in environ.items() if not k.startswith(("PIP_", "UV_"))}
        environ.update(PIP_CONFIG_FILE=os.devnull, UV_NO_CONFIG="1")
    if order["index"]:
        environ.update(PIP_INDEX_URL=order["index"], UV_INDEX_URL=order["index"])
    environ.update(PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    environ.setdefault("PIP_RETRIES", "1")
    return environ


def make(environment: Path, version: str, uv: "str | None") -> None:
    """Make a new environment of a minor version of Python, `3.11`, in place of any other."""
    base = interpreter(version)
    command = [base, "-m", "venv", "--clear", str(environment)]
    if uv:
        command = [uv, "venv", "--clear", "--python", base or version, str(environment)]
    elif not base:
        hint = "install Python " + version + " or uv (https://docs.astral.sh/uv) there"
        fail("no Python " + version + " there", hint)
    say(line="making " + str(environment))
    printed = run(command, dict(os.environ))
    if printed is not None:
        lacks_venv = "ensurepip is not" in printed or "No module named" in printed
        hint = "on Debian and Ubuntu: apt install python" + version + "-venv"
        hint = room_hint(environment) or (hint if lacks_venv else "")
        fail("the environment could not be made: see above", hint)


def interpreter(version: str) -> str:
    """Return the path of a Python of that minor version; "" if not found."""
    for name in (sys.executable, "python" + version, "python3"):
        path = shutil.which(name)
        if path and version_of(Path(path)) == version:
            return path
    return ""


def version_of(python: Path) -> str:
    """Return an interpreter's minor version; "" where it does not run."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    with contextlib.suppress(OSError):
        done = subprocess.run([str(python), "-c", ask], stdout=subprocess.PIPE)
        return done.stdout.decode().strip()
    return ""


def cupy(version: str) -> "list[str]":
    """Return the requirement of CuPy for this host's NVIDIA driver; none without a driver."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        say(line="no NVIDIA driver: without CuPy")
        return []
    said = subprocess.run([smi], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    match = re.search(r"CUDA Version: (\d+)", said.decode("utf-8", "replace"))
    family = "13" if match and int(match.group(1)) >= 13 else "12"
    return ["cupy-cuda" + family + "x[ctk]" + ("==" + version if version else "")]


def run(command: "list[str]", environ: "dict[str, str]") -> "str | None":
    """Run a command and report every line it prints; returns them all where it fails."""
    process = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout
    printed = []
    try:
        for data in process.stdout:
            line = data.decode("utf-8", "replace").rstrip()
            if "Retrying (Retry(" not in line:  # pip's, five of them for each package
                say(line=line)
            printed.append(line)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return "\n".join(printed) if process.wait() else None


def say(**what: Any) -> None:
    """Print a JSON line."""
    print(json.dumps(what), flush=True)


def fail(why: str, hint: str = "") -> NoReturn:
    """Report why it cannot be done, and exit."""
    say(failed=why, hint=hint)
    raise SystemExit(1)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        hint = "free some disk space there"
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            hint = "make that folder one that you may write to, or name a Python there with python="
        fail(str(error.filename or "this host") + ": " + str(error.strerror or error), hint)
