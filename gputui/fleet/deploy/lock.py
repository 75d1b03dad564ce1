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
from gputui.fleet.deploy.bootstrap import PackageSource, cupy_requirement, pins

PIP = ("-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:")
QUIET = ("--quiet", "--no-input", "--disable-pip-version-check", "--report", "-")


def write_lock(path: Path, source: PackageSource) -> int:
    """Write the lock file of the versions used here; returns how many packages it names.

    Raises UsageError with what pip says where it finds no such packages.
    """
    text = lock(source)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return text.count("\n") - 1


def lock(source: PackageSource) -> str:
    """Return the text of a lock file, in the format of pip's --require-hashes."""
    command = [sys.executable, *PIP, *QUIET]
    if source.wheels:
        command += ["--no-index", "--find-links", str(source.wheels[0].parent)]
    environ = dict(os.environ)
    if source.index:  # it may have a password in it, which has no place among arguments
        environ["PIP_INDEX_URL"] = source.index
    done = subprocess.run(
        [*command, *pins(), *cupy_requirement()], env=environ, capture_output=True, text=True
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        problem = next((line for line in said if line.startswith("ERROR")), "it said nothing")
        raise UsageError(f"pip found no packages to lock: {problem.removeprefix('ERROR: ')}")
    found = sorted(map(_line, json.loads(done.stdout)["install"]))
    about = f"# gputui bootstrap --lock: {platform.platform()}, Python {platform.python_version()}"
    return "\n".join([about, *found, ""])


def _line(installed: dict[str, Any]) -> str:
    """Return a package as a line. Source: pip's installation report, version 1."""
    about, digest = installed["metadata"], installed["download_info"]["archive_info"]["hashes"]
    name = re.sub("[-_.]+", "-", about["name"]).lower()
    return f"{name}=={about['version']} --hash=sha256:{digest['sha256']}"
