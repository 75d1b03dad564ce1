"""A host that answers as one did alone: what it said is recorded, and played with the same pauses.

A hundred hosts on one machine share its cores; played ones take next to nothing of them, as a
hundred machines of their own would.

    python tests/benchmarks/recorded.py FILE PYTHON ARGUMENTS

runs Python, and writes what goes through its stdin and stdout.
"""

import json
import os
import selectors
import shlex
import subprocess
import sys
import time
from pathlib import Path

GREETING, MARKER, FIRST, LAST = "gputui-loader-1", "gputui-agent", '"Configure"', '"Shutdown"'


def recorder(folder: Path, python: str) -> Path:
    """Return a stand-in for `python`, which runs that and records it in `folder`."""
    words = [sys.executable, __file__, str(folder / "session.json"), python]
    return script(folder / "recorder", f'exec {shlex.join(words)} "$@"\n')


def player(folder: Path) -> Path:
    """Return a stand-in for Python, which plays what was recorded in `folder`."""
    said = json.loads((folder / "session.json").read_text())

    def when(way: str, word: str) -> float:
        return next(at for at, to, text in said if to == way and word in text)

    greeting_s, marker_s, asked_s = when("out", GREETING), when("out", MARKER), when("in", FIRST)
    answered_s = next(at for at, way, text in said if way == "out" and at > asked_s)
    output = "".join(text for at, way, text in said if way == "out")
    greeting, _, after = output.partition(GREETING)[2].partition("\n")
    (folder / "answers").write_bytes(after.partition("\n")[2].encode("latin-1"))
    greeted = shlex.quote(greeting.split(" ", 2)[2])
    return script(
        folder / "player",
        f"""read -r loader; read -r order
nonce=${{order##*'"nonce": "'}}; nonce=${{nonce%%'"'*}}
sleep {greeting_s:.3f}; printf '%s %s %s\\n' {GREETING} "$nonce" {greeted}
sleep {marker_s - greeting_s:.3f}; echo gputui-agent-stream-1
read -r configure
sleep {answered_s - asked_s:.3f}; cat {shlex.quote(str(folder / "answers"))}
while read -r line; do
  case $line in *Shutdown*) sleep {said[-1][0] - when("in", LAST):.3f}; exit 0;; esac
done
""",
    )


def script(path: Path, text: str) -> Path:
    """Write a script of the shell."""
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def slow_command(folder: Path, command: str) -> str:
    """Return a command that prints what this one prints, after the time that it takes alone."""
    began = time.monotonic()
    output = subprocess.run(command, shell=True, check=True, capture_output=True).stdout
    took_s = time.monotonic() - began
    (folder / "output").write_bytes(output)
    return f"sleep {took_s:.3f}; cat {shlex.quote(str(folder / 'output'))}"


def record(file: Path, command: list[str]) -> int:
    """Run a command, and write [seconds, in or out, what] of all that goes through it."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin and child.stdout
    began, said = time.monotonic(), []
    ways = {0: ("in", child.stdin.fileno()), child.stdout.fileno(): ("out", 1)}
    selector = selectors.DefaultSelector()
    for descriptor in ways:
        selector.register(descriptor, selectors.EVENT_READ)
    while child.stdout.fileno() in selector.get_map():
        for key, _ in selector.select():
            way, to = ways[key.fd]
            data = os.read(key.fd, 2**16)
            said.append((time.monotonic() - began, way, data.decode("latin-1")))
            if data:
                os.write(to, data)
            else:
                selector.unregister(key.fd)
    file.write_text(json.dumps(said))
    return child.wait()


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1]), sys.argv[2:]))
