"""Record fifteen seconds of a real terminal as an animated SVG: `python -m tests.pictures.cast`.

Eight hosts, each an sshd of this machine, are started from a shell. One refuses the connection, and
is tried again once it does not; svd runs, a worker is killed under it, and the result is shown. A
pty's bytes are interpreted by an emulator of a terminal; waiting is cut out. Writes
`screenshots/cast.svg`, which needs no script and no service to play.
"""

import argparse
import asyncio
import contextlib
import getpass
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path

from pyte.screens import Char

from gputui.client.head_connection import HeadConnection
from gputui.protocol.connection_file import find_cluster
from gputui.protocol.frontend import SnapshotTaken
from tests.pictures.scenes import FOLDER
from tests.sshd import SshHost, SshHosts, wait_for_ssh
from tests.terminals import Emulated

CELLS = (110, 30)
CELL_X, CELL_Y = 8.4, 17
KEY_S = 0.05
"""How long a typed character is shown."""
MOST_BYTES = 1_000_000
BOUND_S = 180.0
RAN = "✔ done"
LATE = "node-5"
"""The host whose sshd is not there at first."""
FOREGROUND, BACKGROUND = "d0d0d0", "121212"
NAMED = {
    "default": FOREGROUND,
    "black": "000000",
    "red": "d54e53",
    "green": "b9ca4a",
    "brown": "e6c547",
    "blue": "7aa6da",
    "magenta": "c397d8",
    "cyan": "70c0ba",
    "white": "eaeaea",
}


@dataclass
class Film:
    """Pictures of a terminal, each shown for some of the time; rows alike are kept once."""

    terminal: Emulated
    frames: list[tuple[tuple[str, ...], float]] = field(default_factory=list)

    def shoot(self, seconds: float) -> None:
        """Show what is seen now for so long."""
        rows = tuple(self._row(y) for y in range(CELLS[1]))
        self.frames.append((rows, seconds))

    def watch(self, *texts: str, seconds: float, pictures: int) -> None:
        """Look on until all texts are seen, and show that in so many seconds."""
        seen, began = [], time.monotonic()
        while not all(text in self.terminal.text for text in texts):
            assert time.monotonic() - began < BOUND_S, f"no {texts} in\n{self.terminal.text}"
            self._look(0.25)
            if self.terminal.text.strip():  # a film's first picture is what a still of it shows
                seen.append(tuple(self._row(y) for y in range(CELLS[1])))
        self._look(0.25)
        step = max(1, len(seen) // max(1, pictures - 1))
        chosen = [*seen[::step][: pictures - 1], tuple(self._row(y) for y in range(CELLS[1]))]
        self.frames += [(rows, seconds / len(chosen)) for rows in chosen]

    def look_on(self, span_s: float, *, seconds: float, pictures: int) -> None:
        """Show what happens within a span in so many seconds."""
        for _ in range(pictures):
            self._look(span_s / pictures)
            self.shoot(seconds / pictures)

    def press(self, keys: bytes, seconds: float) -> None:
        """Press keys, and show what they do."""
        self.terminal.type(keys)
        self._look(0.5)
        self.shoot(seconds)

    def type(self, text: str) -> None:
        """Type a line, as fast as a person does."""
        for character in text.encode():
            self.terminal.type(bytes([character]))
            self._look(0.1)
            self.shoot(KEY_S)

    def _look(self, seconds: float) -> None:
        """Take in what the terminal gets for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.terminal.read(0.05)

    def _row(self, y: int) -> str:
        """Return a row's cells as elements of an SVG."""
        line = self.terminal.screen.buffer[y]
        cells = [line[x] for x in range(CELLS[0])]
        parts: list[str] = []
        x = 0
        for look, run in groupby(cells, key=_look_of):
            text = "".join(cell.data for cell in run)
            parts += _drawn(text, look, x)
            x += len(text)
        return "".join(parts)

    def svg(self, title: str) -> str:
        """Return the film."""
        width, height = CELLS[0] * CELL_X + 20, CELLS[1] * CELL_Y + 50
        names: dict[str, str] = {}
        rows = [row for frame, _ in self.frames for row in frame if row]
        for row in rows:
            names.setdefault(row, f"r{len(names)}")
        length_s = sum(seconds for _, seconds in self.frames)
        shown, steps, at = [], [], 0.0
        for number, (frame, seconds) in enumerate(self.frames):
            uses = "".join(
                f'<use href="#{names[row]}" y="{y * CELL_Y}"/>'
                for y, row in enumerate(frame)
                if row
            )
            shown.append(f'<svg x="{number * width:.0f}" width="{width:.0f}">{uses}</svg>')
            steps.append(f"{at / length_s:.3%}{{transform:translateX({-number * width:.0f}px)}}")
            at += seconds
        defined = "".join(f'<g id="{name}">{row}</g>' for row, name in names.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" '
            f'viewBox="0 0 {width:.0f} {height}" '
            f'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14">'
            f"<style>text{{white-space:pre}}@keyframes film{{{''.join(steps)}}}"
            f".film{{animation:film {length_s:.1f}s steps(1,end) infinite}}</style>"
            f'<rect width="100%" height="100%" rx="8" fill="#{BACKGROUND}"/>'
            f'<text x="12" y="22" fill="#888">{escape(title)}</text><defs>{defined}</defs>'
            f'<svg x="10" y="34" width="{width - 20:.0f}" height="{height - 44}" overflow="hidden">'
            f'<g class="film">{"".join(shown)}</g></svg></svg>\n'
        )


def _look_of(cell: Char) -> tuple[str, str, bool]:
    """Return a cell's colours and whether it is bold."""
    front, back = _colour(cell.fg, FOREGROUND), _colour(cell.bg, BACKGROUND)
    return (back, front, cell.bold) if cell.reverse else (front, back, cell.bold)


def _colour(name: str, default: str) -> str:
    known = default if name == "default" else NAMED.get(name.removeprefix("bright"), name)
    return known if len(known) == 6 else default


def _drawn(text: str, look: tuple[str, str, bool], x: int) -> list[str]:
    front, back, bold = look
    begin, wide = f"{x * CELL_X:.1f}", f"{len(text) * CELL_X:.1f}"
    parts = []
    if back != BACKGROUND:
        parts.append(f'<rect x="{begin}" width="{wide}" height="{CELL_Y}" fill="#{back}"/>')
    if text.strip():
        weight = ' font-weight="bold"' if bold else ""
        parts.append(
            f'<text x="{begin}" y="13" textLength="{wide}" fill="#{front}"{weight}>'
            f"{escape(text)}</text>"
        )
    return parts


def eight_hosts(folder: Path) -> SshHosts:
    """Return eight hosts, each an sshd of this machine, of which one is not started yet."""
    folder.mkdir()
    hosts = SshHosts(folder)
    hosts.make_keys()
    hosts.describe(
        *(
            SshHost(f"node-{number}", f"127.0.0.{number + 1}", 2200 + number, getpass.getuser())
            for number in range(1, 9)
        )
    )
    for host in hosts.hosts:
        if host.name != LATE:
            hosts.start_sshd(host)
            wait_for_ssh(hosts, host)
    return hosts


async def a_worker() -> int:
    """Return the process of a worker that computes."""
    cluster = find_cluster("hosts")
    assert cluster is not None
    connection = await HeadConnection.open(cluster.socket, frontend="screen", snapshots=True)
    async for message in connection.messages():
        if isinstance(message, SnapshotTaken):
            busy = [each for each in message.snapshot.workers if each.executing and each.pid]
            if busy:
                await connection.close()
                return busy[-1].pid or 0
    raise AssertionError("the cluster has ended")


def record(rows: int) -> str:
    """Play the script in a shell's terminal, and return its film."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        home = Path(folder)
        ssh = eight_hosts(home / "ssh")
        ending.callback(ssh.stop)
        command = home / "gputui"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gputui "$@"\n')
        command.chmod(0o700)
        (home / "hosts.txt").write_text("*  gpus=none workers=1\nnode-[1-8]\n")
        own = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"), folder)
        os.environ.update(own | ssh.environment)
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "PS1": "$ ", "ENV": ""}
        terminal = Emulated.start("/bin/sh", "-i", env=env, cells=CELLS)
        ending.callback(terminal.kill)
        stop = [str(command), "down", "--all"]
        ending.callback(lambda: subprocess.run(stop, capture_output=True, check=False))
        terminal.type(f"cd {folder}; clear\r".encode())
        film = Film(terminal)
        film._look(1.0)
        film.watch("$ ", seconds=0.3, pictures=1)
        film.type("cat hosts.txt\r")
        film.shoot(0.8)
        film.type("gputui hosts.txt\r")
        film.watch("refuses the connection", "workers 7/7", seconds=2.4, pictures=6)
        ssh.start_sshd(next(host for host in ssh.hosts if host.name == LATE))
        film.press(b"0", 1.0)
        film.type(f":retry {LATE}\r")
        film.watch("workers 8/8", seconds=1.4, pictures=4)
        film.press(b"1", 0.6)
        film.type(f":run svd rows={rows}\r")
        film.watch("● running", seconds=0.6, pictures=1)
        film.press(b"1", 0.3)
        film.look_on(3.0, seconds=0.8, pictures=3)
        os.kill(asyncio.run(a_worker()), signal.SIGKILL)
        film.watch("workers 7/8", seconds=0.9, pictures=2)
        film.watch("workers 8/8", seconds=0.9, pictures=2)
        film.press(b"6", 0.4)
        film.watch(RAN, seconds=1.6, pictures=5)
        film.shoot(2.0)
        for key in b"q", b"s", b"y":
            terminal.type(key)
            film._look(3.0)
    return film.svg("gputui hosts.txt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="of the matrix (%(default)s)")
    svg = record(parser.parse_args().rows)
    assert len(svg.encode()) <= MOST_BYTES, f"{len(svg.encode()):,} bytes"
    (FOLDER / "cast.svg").write_text(svg, encoding="utf-8")
    print(f"{FOLDER / 'cast.svg'}: {len(svg.encode()) / 1024:.0f} kB")
