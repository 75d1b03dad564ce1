"""Run on a host, sent there on stdin: chooses the interpreter and starts the packed agent in it.

Reads one JSON line, the order; prints one line, the greeting; takes the pack on stdin where the
cache does not have it by its hash; becomes the relay. It must run on any Python 3.6 or later, to
say that it is the wrong one.
"""

import contextlib
import hashlib
import io
import json
import os
import sys
import time
from pathlib import Path

GREETING = "gputui-loader-1"
TOOK = "gputui-loader-took"
PIECE_BYTES = 32768
NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "9p")
DRAFT_S = 3600.0
"""A draft of the pack that is older was left by a loader that was killed."""
KEPT_S = 30 * 86400.0
"""Every start touches its pack, and every agent its own once a day."""
FITS = """import sys
def fit(wanted, packages):
    if not sys.version.startswith(wanted):
        return 0
    from importlib.metadata import PackageNotFoundError, version
    fits = 1
    for each in packages:
        name, _, there = each.partition("==")
        try:
            fits += version(name) == there
        except PackageNotFoundError:
            return 1
    return fits + 1
if __name__ == "__main__":
    print(fit(sys.argv[1], sys.argv[2:]), sys.version.split()[0])"""
"""How well a Python fits: 0 of another minor version, 1 without a package, more with each that has
the wanted version."""


def main() -> None:
    """Carry out the order on stdin."""
    order = json.loads(read_line().decode())
    python, version = choose(order["version"] + ".", order["packages"], order["others"])
    path = find(order["hash"])
    client, _, address, *_ = [*os.environ.get("SSH_CONNECTION", "").split(), "", "", ""]
    greeting = {
        "python": python,
        "version": version,
        "send": not path,
        "address": address,
        "client": client,
        "time": time.time(),
        "places": places(),
    }
    os.environ.pop("GPUTUI_FIND", None)
    say(f"{GREETING} {order['nonce']} {json.dumps(greeting, ensure_ascii=False)}\n")
    if not path:
        path = store(order["hash"], read_exactly(order["size"]))
    os.environ["GPUTUI_CLUSTER"] = order["cluster"]
    os.execv(python, [python, path, "relay"])


def choose(wanted: str, packages: "list[str]", others: "list[str]") -> "tuple[str, str]":
    """Return (interpreter, its version): the one that fits best, this one first.

    One fits that is of the `wanted` minor version ("3.11.") and has the `packages`, each as
    "dask==2026.8.0".
    """
    own = sys.version.split()[0]
    if not others:
        return sys.executable, own
    import shutil
    import subprocess

    names = {}  # type: dict[str, object]
    exec(FITS, names)
    best = names["fit"](wanted, packages)  # type: ignore[operator]
    chosen = sys.executable, own
    for candidate in others:
        path = shutil.which(str(Path(candidate).expanduser()))
        if path is not None and best < len(packages) + 2:
            probe = subprocess.run(
                [path, "-c", FITS, wanted, *packages],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            said = probe.stdout.decode().split()
            if probe.returncode == 0 and len(said) == 2 and int(said[0]) > best:
                best, chosen = int(said[0]), (path, said[1])
    return chosen


def find(wanted: str) -> str:
    """Return the path of the pack with this hash in the cache; "" where it is not there whole."""
    for folder in folders():
        path = folder / f"agent-{wanted}.pyz"
        try:
            check(folder)
            if path.lstat().st_uid == os.getuid() and digest(path.read_bytes()) == wanted:
                os.utime(str(path))
                return str(path)
        except OSError:
            continue
    return ""


def store(wanted: str, data: bytes) -> str:
    """Write the pack into the first cache folder that takes it, readable by this user only.

    Where none does, as others hold their names, it is one with a new name, which is found again.
    """
    import tempfile

    if digest(data) != wanted:
        raise SystemExit("gputui: the agent did not arrive as it was sent")
    problems = []
    for folder in folders():
        try:
            return write(folder, f"agent-{wanted}.pyz", data)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    usual = folders()[1]
    try:
        made = Path(tempfile.mkdtemp(prefix=usual.name + "-", dir=str(usual.parent)))
        try:
            path = write(made, f"agent-{wanted}.pyz", data)
        except OSError:
            made.rmdir()
            raise
    except OSError as error:
        words = "gputui: no folder to keep the agent in: "
        raise SystemExit(words + "; ".join(problems)) from error
    sys.stderr.write(f"gputui: {'; '.join(problems)}; {made} is used instead\n")
    return path


def write(folder: Path, name: str, data: bytes) -> str:
    """Write a file at once as a whole; raises OSError where the folder is not this user's own."""
    import tempfile

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check(folder)
    sweep(folder)
    handle, temporary = tempfile.mkstemp(dir=str(folder), prefix=".agent-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(folder / name)
    except OSError:
        Path(temporary).unlink()
        raise
    return str(folder / name)


def places() -> "dict[str, object]":
    """Describe this host's folders: problems of the cache, TMPDIR, and the home.

    A home is the same one on two machines where its folder is, on a network file system.
    """
    problems = []
    for folder in folders():
        try:
            if os.path.lexists(str(folder)):
                check(folder)
            problem = ""
        except OSError as error:
            problem = error.strerror or str(error)
        problems.append([str(folder), problem])
    home = Path("~").expanduser()
    identity = ""
    with contextlib.suppress(OSError):
        status = home.stat()
        shared = filesystem(home) in NETWORK
        where = "network" if shared else read("/proc/sys/kernel/random/boot_id")
        identity = " ".join([where, str(status.st_ino), str(status.st_ctime_ns)])
    return {"cache": problems, "temporary": os.environ.get("TMPDIR", ""), "home": identity}


def filesystem(path: Path) -> str:
    """Return the kind of file system that a path is on; "" where that is not known.

    Source: proc_pid_mounts(5).
    """
    found = ("", "")
    for line in read("/proc/self/mounts").splitlines():
        _, point, kind = line.split(" ")[:3]
        inside = (str(path.resolve()) + "/").startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


def read(path: str) -> str:
    """Return the text of a file; "" where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


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
            try:
                if time.time() - path.lstat().st_mtime > kept_s:
                    path.unlink()
            except OSError:
                continue


def folders() -> "list[Path]":
    """Return the folders for the pack, the user's cache first, made ones with new names last."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    usual = Path(os.environ.get("TMPDIR") or "/tmp") / f"gputui-{os.getuid()}"
    made = []
    for path in sorted(usual.parent.glob(usual.name + "-*")):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                made.append(path)
    return [Path(cache).expanduser() / "gputui", usual, *made]


def digest(data: bytes) -> str:
    """Return the SHA-256 of the bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def say(text: str) -> None:
    """Write all of a line to stdout at once."""
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]


def read_line() -> bytes:
    """Return a line of stdin, and read no further than its end."""
    return io.FileIO(0, closefd=False).readline()


def read_exactly(size: int) -> bytes:
    """Return that many bytes of stdin, and report each piece of them that has come."""
    parts = []
    taken = reported = 0
    while taken < size:
        part = os.read(0, min(size - taken, 65536))
        if not part:
            raise SystemExit("gputui: the connection ended before the agent had arrived")
        parts.append(part)
        taken += len(part)
        while reported < taken // PIECE_BYTES:
            reported += 1
            say(f"{TOOK}\n")
    return b"".join(parts)


if __name__ == "__main__":
    main()
