"""Runs on the machine of a head that is reached over SSH: finds clusters there, or starts one.

Sent on stdin, as the loader of agents is: nothing of gputui need be importable to find a cluster,
and any Python 3.6 or later will do. Prints one line: the greeting, and an answer as JSON.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, List  # noqa: UP035 - as Python 3.6 has them

GREETING = "gputui-there-1"
SHELL_S = 10
"""How long a login shell may take."""
LISTEN_S = 10.0
STOP_S = 15.0
"""How long a head may take to stop its cluster."""


def main() -> int:
    """Carry out the order on stdin."""
    order = json.loads(sys.stdin.readline())
    answer = {}  # type: Dict[str, Any]
    if order["do"] == "find":
        answer = {"clusters": find()}
    elif order["do"] == "stop":
        answer = {"stopped": stop(order["pid"], order["id"])}
    elif order["do"] == "listen":
        answer = listen()
    else:
        answer = up(order["arguments"], order["hosts"], order["gputui"], order["here"])
    os.write(1, (" ".join([GREETING, json.dumps(answer)]) + "\n").encode())
    return 0


def find() -> List[Any]:  # noqa: UP006
    """Return the contents of the connection files of the clusters that run here."""
    found = []
    for folder in folders():
        for path in sorted(folder.glob("*.json")):
            try:
                with os.fdopen(os.open(str(path), os.O_RDWR | os.O_NOFOLLOW), "r+") as file:
                    status = os.fstat(file.fileno())
                    own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
                    if own and is_locked(file.fileno()):
                        found.append(json.loads(file.read()))
            except (OSError, ValueError):
                continue
    return [each for each in found if each.get("socket")]


def stop(pid: int, cluster_id: str) -> bool:
    """Have a head of any version stop its cluster; returns whether it has."""
    mark = "GPUTUI_CLUSTER=" + cluster_id
    with contextlib.suppress(OSError):
        if mark.encode() in Path("/proc/%d/environ" % pid).read_bytes().split(b"\0"):  # noqa: UP031
            os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    while any(each.get("cluster_id") == cluster_id for each in find()):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def listen() -> Dict[str, Any]:  # noqa: UP006
    """Open a socket and a port of loopback for a while, so that the client can test forwarding;
    each greets its connections.
    """
    folder = Path(tempfile.mkdtemp(prefix="gputui-"))
    ends = [socket.socket(socket.AF_UNIX), socket.socket()]
    ends[0].bind(str(folder / "try"))
    ends[1].bind(("127.0.0.1", 0))
    for end in ends:
        end.listen(4)
    if os.fork():
        return {"socket": str(folder / "try"), "port": ends[1].getsockname()[1]}
    try:
        until = time.monotonic() + LISTEN_S
        while time.monotonic() < until:
            for end in select.select(ends, [], [], 0.2)[0]:
                with contextlib.suppress(OSError), end.accept()[0] as connection:
                    connection.sendall(b"g")
    finally:
        shutil.rmtree(str(folder))
        os._exit(0)


def is_locked(descriptor: int) -> bool:
    """Whether a head holds its connection file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def folders() -> List[Path]:  # noqa: UP006
    """Return the folders for connection files, those that only this user may write to.

    A login by SSH may lack what a desktop sets. A folder in /tmp may be another user's, and a link
    from there may lead to files of this user.
    """
    user = str(os.getuid())
    runtime = [os.environ.get("XDG_RUNTIME_DIR", ""), "/run/user/" + user]
    named = [Path(each, "gputui") for each in runtime if each]
    for each in (os.environ.get("TMPDIR") or "/tmp", "/tmp"):
        named += [Path(each, "gputui-" + user), *sorted(Path(each).glob("gputui-" + user + "-*"))]
    found: Dict[Any, Path] = {}  # noqa: UP006
    for folder in named:
        try:
            status = folder.lstat()
        except OSError:
            continue
        own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if own and not status.st_mode & 0o022:
            found.setdefault((status.st_dev, status.st_ino), folder)
    return list(found.values())


def up(
    arguments: List[str],  # noqa: UP006
    hosts: str,
    given: str,
    there: str,
) -> Dict[str, Any]:  # noqa: UP006
    """Start a cluster with the gputui that is installed here; end it where stdin ends before."""
    candidates = [given] if given else places(there)
    command = next((path for path in candidates if path and os.access(path, os.X_OK)), None)
    if command is None:
        return {"looked": [path or "the login shell's PATH" for path in candidates]}
    process = subprocess.Popen(
        [command, "up", "-", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    threading.Thread(target=end_with_stdin, args=(process,), daemon=True).start()
    said, warned = (text.decode("utf-8", "replace") for text in process.communicate(hosts.encode()))
    return {"status": process.returncode, "said": said, "warned": warned}


def places(there: str) -> List[str]:  # noqa: UP006
    """Return where the gputui of this machine may be, "" where the login shell finds none.

    `there` is its path on the machine that asks.
    """
    found = [
        in_login_shell(),
        str(Path(sys.executable).with_name("gputui")),
        there,
        str(Path("~/.local/bin/gputui").expanduser()),
        str(Path("~/.local/share/gputui/env/bin/gputui").expanduser()),
    ]
    return list(dict.fromkeys(found))


def in_login_shell() -> str:
    """Return the gputui on the PATH that a login shell sets; "" for none, and for a slow shell."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        said = subprocess.run(
            [shell, "-l", "-c", "command -v gputui"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SHELL_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = said.stdout.decode("utf-8", "replace").splitlines()
    return lines[-1] if lines and not said.returncode else ""


def end_with_stdin(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt the start when its client is gone."""
    while os.read(0, 4096):
        continue
    process.terminate()


if __name__ == "__main__":
    raise SystemExit(main())
