"""A machine of a test's own for the SSH client: its home, /etc files and network, and no others'.

ssh finds the home by the user's passwd entry, whatever $HOME says. So what runs there sees, in a
mount namespace, a /etc/passwd that names another home, and a network with loopback only.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.sshd import unavailable

REPOSITORY = Path(__file__).parents[2]


def run_at_home(
    home: Path, etc: Mapping[str, str], *command: str | Path, bound_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command with a home of its own, next to which these files of /etc are made.

    `etc` is the name in /etc → the text, for passwd that of more users; the files must be there.
    """
    if os.geteuid() != 0 or not shutil.which("unshare"):
        unavailable("a home of the passwd file needs root and unshare")
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    me = pwd.getpwuid(os.getuid())
    users = [f"{me.pw_name}:x:{me.pw_uid}:{me.pw_gid}::{home}:/bin/sh", etc["passwd"]]
    there = Path("/etc/passwd").read_text().splitlines()
    users[1:1] = [line for line in there if not line.startswith(f"{me.pw_name}:")]
    binds = []
    for name, text in {"ssh/ssh_config": "", **etc, "passwd": "\n".join(users) + "\n"}.items():
        path = home.parent / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        binds.append(f"mount --bind {path} /etc/{name}")
    script = " && ".join([*binds, "ip link set lo up", 'exec "$@"'])
    inside = ["unshare", "--mount", "--net", "--", "sh", "-c", script, "sh"]
    mine = {"HOME": str(home), "SHELL": "/bin/sh", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [*inside, *map(str, command)],
        cwd=REPOSITORY,
        env={**os.environ, **mine},
        capture_output=True,
        text=True,
        timeout=bound_s,
    )
