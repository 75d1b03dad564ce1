"""Write a lock file for `bootstrap`: every package for the hosts, with its version and hash.

pip resolves, for this machine's Python and platform, which are the hosts' own.
"""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from gputui.errors import UsageError
from gputui.fleet.deploy.bootstrap import PackageSource, cupy_version, pins

PIP = (
    *("-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"),
    *("--quiet", "--no-input", "--disable-pip-version-check", "--report", "-"),
)


def write_lock(path: Path, source: PackageSource) -> int:
    """Write the lock file of the versions used here; returns how many packages it names.

    Raises UsageError with what pip says where it finds no such packages, and for a link.
    """
    text = lock(source)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = "is a link; name another file" if path.is_symlink() else error.strerror
        raise UsageError(f"{path}: {reason}") from error
    return text.count("\n") - 1


def lock(source: PackageSource) -> str:
    """Return the text of a lock file, in the format of pip's --require-hashes."""
    links = ["--no-index", "--find-links", str(source.wheels[0].parent)] if source.wheels else []
    cupy, version = cupy_version()
    packages = [*pins(), *([f"{cupy}[ctk]=={version}"] if cupy else [])]
    # An index may have a password in it, which has no place among arguments.
    index = {"PIP_INDEX_URL": source.index} if source.index else {}
    command = [sys.executable, *PIP, *links, *packages]
    done = subprocess.run(command, env={**os.environ, **index}, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        problem = errors[0].removeprefix("ERROR: ") if errors else f"exit {done.returncode}"
        raise UsageError(f"pip found no packages to lock: {problem}")
    found = sorted(map(_line, json.loads(done.stdout)["install"]))
    about = f"# gputui bootstrap --lock: {platform.platform()}, Python {platform.python_version()}"
    return "\n".join([about, *found, ""])


def _line(installed: dict[str, Any]) -> str:
    """Return a package as a line. Source: pip's installation report, version 1."""
    about, digest = installed["metadata"], installed["download_info"]["archive_info"]["hashes"]
    name = re.sub("[-_.]+", "-", about["name"]).lower()
    return f"{name}=={about['version']} --hash=sha256:{digest['sha256']}"
