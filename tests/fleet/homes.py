"""A machine of a test's own for the SSH client: its home, /etc files and network, and no others'.

ssh finds the home by the user's passwd entry, whatever $HOME says. So what runs `inside` sees,
in a mount namespace, a /etc/passwd that names another home, and a network with loopback only.
"""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sshd import unavailable

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Home:
    """A home folder, and the files of /etc that belong with it."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "home"

    @property
    def ssh(self) -> Path:
        return self.path / ".ssh"

    def write_etc(self, name: str, text: str) -> None:
        """Put a file in place of one of /etc, which must be there."""
        path = self.folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(
        self,
        *command: str | Path,
        network: bool = True,
        env: Mapping[str, str] | None = None,
        bound_s: float = 110,
    ) -> subprocess.CompletedProcess[str]:
        mine = {"HOME": str(self.path), "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(
            [*self.inside(network), *map(str, command)],
            cwd=REPOSITORY,
            env={**os.environ, **mine, **(env or {})},
            capture_output=True,
            text=True,
            timeout=bound_s,
        )

    def inside(self, network: bool) -> Sequence[str]:
        """Return what a command is to be preceded by."""
        etc = self.folder / "etc"
        binds = [
            f"mount --bind {path} /etc/{path.relative_to(etc)}"
            for path in etc.rglob("*")
            if path.is_file()
        ]
        up = [] if network else ["ip link set lo up"]
        script = " && ".join([*binds, *up, 'exec "$@"'])
        spaces = ["--mount"] if network else ["--mount", "--net"]
        return ["unshare", *spaces, "--", "sh", "-c", script, "sh"]


def make_home(folder: Path, passwd: str = "") -> Home:
    """Make a home for this user, and other users by lines of passwd; skips where it cannot be."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        unavailable("a home of the passwd file needs root and unshare")
    me = pwd.getpwuid(os.getuid())
    home = Home(folder)
    home.ssh.mkdir(parents=True, mode=0o700)
    others = [
        line
        for line in Path("/etc/passwd").read_text().splitlines()
        if not line.startswith(f"{me.pw_name}:")
    ]
    mine = f"{me.pw_name}:x:{me.pw_uid}:{me.pw_gid}::{home.path}:/bin/sh"
    home.write_etc("passwd", "\n".join([mine, *others, passwd]) + "\n")
    home.write_etc("ssh/ssh_config", "")
    return home


PYTHON = sys.executable
