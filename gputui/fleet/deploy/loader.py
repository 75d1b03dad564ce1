"""Run on a host, sent there on stdin: chooses the interpreter and starts the packed agent in it.

Reads one JSON line, the order; prints one line, the greeting; takes the pack on stdin where the
cache does not have it by its hash; becomes the relay. It must run on any Python 3.6 or later, to
say that it is the wrong one.
"""

import contextlib
import hashlib
import json
import os
import sys
import time
from pathlib import Path

GREETING = "gputui-loader-1"
TOOK = "gputui-loader-took"
PIECE_BYTES = 32768
DRAFT_S = 3600.0
"""A draft of the pack that is older was left by a loader that was killed."""
KEPT_S = 30 * 86400.0
"""Every start touches its pack, and every agent its own for as long as it runs."""
FITS = """import sys
def fit(wanted, packages):
    if not sys.version.startswith(wanted):
        return 0
    from importlib.util import find_spec
    from os import path
    fits = 2
    for each in packages:
        name, _, there = each.partition("==")
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            return 1
        folder = path.dirname(path.dirname(spec.origin))
        same = path.isdir(path.join(folder, "%s-%s.dist-info" % (name, there)))
        if not same:
            from importlib.metadata import PackageNotFoundError, version
            try:
                same = version(name) == there
            except PackageNotFoundError:
                return 1
        fits += same
    return fits
if __name__ == "__main__":
    print(fit(sys.argv[1], sys.argv[2:]), sys.version.split()[0])"""
"""How well a Python fits: 0 of another minor version, 1 without a package, more with each that has
the wanted version. Source of the folder's name: Recording installed projects, PyPA."""


def main() -> None:
    """Carry out the order on stdin: the head sends nothing more before the greeting."""
    order = json.loads(sys.stdin.readline())
    python, version = choose(order["version"] + ".", order["packages"], order["others"])
    path = find(order["hash"])
    client, _, address, *_ = [*os.environ.get("SSH_CONNECTION", "").split(), "", "", ""]
    if not client:
        client = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
        address = own_end(client)
    greeting = {
        "python": python,
        "version": version,
        "send": not path,
        "address": address,
        "client": client,
        "time": time.time(),
    }
    os.environ.pop("GPUTUI_FIND", None)
    say(" ".join((GREETING, order["nonce"], json.dumps(greeting, ensure_ascii=False))))
    if not path:
        path = store(order["hash"], receive(order["size"]))
    if python != sys.executable:
        os.execv(python, [python, path, "relay"])
    sys.path.insert(0, path)  # without another start of Python, which takes 50 ms
    from gputui.agent.__main__ import main as run_agent

    run_agent()


def choose(wanted: str, packages: "list[str]", others: "list[str]") -> "tuple[str, str]":
    """Return (interpreter, its version): the one that fits best, this one first.

    One fits that is of the `wanted` minor version ("3.11.") and has the `packages`, each as
    "dask==2026.8.0".
    """
    chosen, most = (sys.executable, sys.version.split()[0]), len(packages) + 2
    names = {}  # type: dict[str, object]
    exec(FITS, names)
    best = names["fit"](wanted, packages) if others else most  # type: ignore[operator]
    if best == most:
        return chosen
    import shutil
    import subprocess

    for candidate in others:
        path = shutil.which(str(Path(candidate).expanduser()))
        if path is not None and best < most:
            command = [path, "-c", FITS, wanted, *packages]
            quiet = subprocess.DEVNULL
            probe = subprocess.run(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)
            said = probe.stdout.decode().split()
            if probe.returncode == 0 and len(said) == 2 and int(said[0]) > best:
                best, chosen = int(said[0]), (path, said[1])
    return chosen


def own_end(there: str) -> str:
    """Return this host's end of the way to another, "" where it has none; nothing is sent."""
    import socket

    with contextlib.suppress(OSError):
        family, kind, _, _, end = socket.getaddrinfo(there, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(end)
            return str(probe.getsockname()[0])
    return ""


def find(wanted: str) -> str:
    """Return the path of the pack with this hash in the cache; "" where it is not there whole."""
    for folder in folders():
        path = folder / f"agent-{wanted}.pyz"
        with contextlib.suppress(OSError):
            check(folder)
            if path.lstat().st_uid == os.getuid() and digest(path.read_bytes()) == wanted:
                os.utime(str(path))
                return str(path)
    return ""


def store(wanted: str, data: bytes) -> str:
    """Write the pack into the first cache folder that takes it, readable by this user only."""
    if digest(data) != wanted:
        raise SystemExit("gputui: the agent did not arrive as it was sent")
    problems = []
    for folder in folders():
        try:
            return write(folder, f"agent-{wanted}.pyz", data)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    raise SystemExit(f"gputui: no folder to keep the agent in: {'; '.join(problems)}")


def write(folder: Path, name: str, data: bytes) -> str:
    """Write a file at once as a whole; raises OSError where the folder is not this user's own."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check(folder)
    sweep(folder)
    draft = folder / f".agent-{os.urandom(16).hex()}"
    try:
        with os.fdopen(os.open(str(draft), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(data)
        draft.replace(folder / name)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return str(folder / name)


def check(folder: Path) -> None:
    """Close a folder to others, who could swap what is in it.

    Raises OSError for a link, and for the folder of another user.
    """
    descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid():
            raise OSError("it belongs to another user")
        if status.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove the drafts of loaders that were killed, and packs that no agent runs from any more."""
    for pattern, kept_s in ((".agent-*", DRAFT_S), ("agent-*.pyz", KEPT_S)):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > kept_s:
                    path.unlink()


def folders() -> "list[Path]":
    """Return the folders for the pack, the user's cache first."""
    named, temporary = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("TMPDIR") or "/tmp"
    cache = Path(named if named.startswith("/") else "~/.cache").expanduser()
    return [cache / "gputui", Path(temporary) / f"gputui-{os.getuid()}"]


def digest(data: bytes) -> str:
    """Return the SHA-256 of the bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "surrogateescape"))
    sys.stdout.flush()


def receive(size: int) -> bytes:
    """Return that many bytes of stdin, and report each piece of them that has come."""
    pieces = []
    for taken in range(0, size, PIECE_BYTES):
        pieces.append(sys.stdin.buffer.read(min(PIECE_BYTES, size - taken)))
        say(TOOK)
    return b"".join(pieces)


if __name__ == "__main__":
    main()
