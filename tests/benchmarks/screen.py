"""What the screen costs in a real terminal: `python tests/benchmarks/screen.py [SECONDS]`.

A simulated cluster in a process of its own is watched through a socket, as a head would be; the
screen runs in a pty whose other end counts what arrives. A row per size of cluster: first byte,
first GPU shown, CPU of one core and bytes a second once all is up, a key's way to the screen
(95th percentile), bytes while paused, and resident memory.
"""

import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

COLUMNS, LINES = 120, 40
SHAPES = ("8x8", "125x8", "512x8")
ZOOMS = {"gpu": b"1zz", "heat": b"1ZZ"}
SETTLING_S = 20.0
KEYS = 40
TICKS = os.sysconf("SC_CLK_TCK")
FACE = """
import sys
from gputui.cluster.link import HeadLink
from gputui.tui.app import run_screen
async def opened():
    return await HeadLink.open(sys.argv[1], face="screen", snapshots=True)
sys.exit(run_screen(opened))
"""


@dataclass
class Screen:
    """A screen in a pty."""

    pid: int
    terminal: int
    begun_at: float

    @classmethod
    def start(cls, socket: Path) -> "Screen":
        begun_at = time.perf_counter()
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.environ["COLORTERM"] = "truecolor"
            os.execv(sys.executable, [sys.executable, "-c", FACE, str(socket)])
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        return cls(pid, terminal, begun_at)

    def read(self, seconds: float, until: bytes = b"") -> bytes:
        """Return what arrives in so many seconds, or until this text has."""
        end = time.perf_counter() + seconds
        taken = b""
        while (left := end - time.perf_counter()) > 0:
            ready, _, _ = select.select([self.terminal], [], [], left)
            if ready:
                taken += os.read(self.terminal, 65536)
                if until and until in taken:
                    break
        return taken

    def type(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def key_to_frame_ms(self) -> list[float]:
        """Return how long each of some keys took to change what is shown."""
        spans = []
        for number in range(KEYS):
            self.read(0.05)
            begin = time.perf_counter()
            self.type(b"k" if number % 2 else b"j")
            if self.read_any(1.0):
                spans.append((time.perf_counter() - begin) * 1000)
        return spans

    def read_any(self, seconds: float) -> bool:
        """Wait for the next bytes; return whether they came."""
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        return bool(ready and os.read(self.terminal, 65536))

    def end(self) -> None:
        self.type(b"ql")
        self.read(3.0, b"\x1b[?1049l")
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def measure(shape: str, zoom: str, seconds: float, folder: Path) -> str:
    """Return a row of the table."""
    socket = folder / f"{shape}-{zoom}.sock"
    demo = subprocess.Popen(
        [sys.executable, "-m", "gputui.demo", shape, str(socket)], stdin=subprocess.PIPE
    )
    while not socket.exists():
        time.sleep(0.05)
    screen = Screen.start(socket)
    try:
        screen.read(10.0, b"\x1b[")
        first_ms = (time.perf_counter() - screen.begun_at) * 1000
        screen.read(10.0, b"HOST")
        frame_ms = (time.perf_counter() - screen.begun_at) * 1000
        screen.read(SETTLING_S)
        screen.type(ZOOMS[zoom])
        screen.read(1.0)
        before, began = screen.cpu_s(), time.perf_counter()
        sent = len(screen.read(seconds))
        spent = time.perf_counter() - began
        core = 100 * (screen.cpu_s() - before) / spent
        keys = screen.key_to_frame_ms()
        memory = screen.resident_mib()
        screen.type(b"p")
        screen.read(2.0)
        idle = len(screen.read(5.0)) / 5
    finally:
        screen.end()
        demo.communicate(b"")
    p95 = statistics.quantiles(keys, n=20)[-1]
    rate = sent / spent / 1000
    return (
        f"{shape:>8} {zoom:>5} {first_ms:9.0f} {frame_ms:9.0f} {core:7.1f} {rate:7.1f}"
        f" {p95:9.0f} {idle:8.0f} {memory:8.0f}"
    )


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    print(f"{COLUMNS}×{LINES}, {seconds:.0f} s each")
    print("   shape  zoom byte(ms) frame(ms)  CPU(%)  kB/s  key95(ms) idle(B/s) RSS(MiB)")
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            for zoom in ZOOMS:
                print(measure(shape, zoom, seconds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
