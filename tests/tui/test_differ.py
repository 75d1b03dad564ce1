"""Whether the differ still reads what Textual writes: its whole output beside what is let through.

Fails where another version of Textual writes frames that the differ takes for something else.
"""

import json
import sys
from pathlib import Path

import pyte
import pytest

from gputui.tui.terminal.cells import SHOWS_NOTHING, Cells
from tests.terminals import Emulated, wait

CELLS = (100, 30)
SCREEN = """
import json, runpy, sys
from gputui.tui import terminal as driver

class Noted(driver.Cells):
    def let_through(self, data, size):
        print(json.dumps(data), file=written, flush=True)
        return super().let_through(data, size)

written = open(sys.argv.pop(1), "w")
driver.Cells = Noted
runpy.run_module("gputui", run_name="__main__")
"""


@pytest.mark.slow
def test_the_differ_reads_every_frame_and_shows_what_textual_alone_would(tmp_path: Path) -> None:
    written = tmp_path / "written"
    options = ("--demo", "2x4", "--seed", "1")
    env = {"XDG_STATE_HOME": str(tmp_path)}
    shown = Emulated.start(
        sys.executable, "-c", SCREEN, str(written), *options, env=env, cells=CELLS
    )
    try:
        shown.sees("8 GPUs on 2 hosts")
        shown.type(b"?")
        shown.sees("esc closes")
        shown.type(b"c")
        shown.sees_not("esc closes")
        shown.type(b"p")
        shown.sees("PAUSED")
        wait(lambda: not shown.read(1.0), "a second of silence")
    finally:
        shown.kill()
    outputs = [json.loads(line) for line in written.read_text().splitlines()]
    frames = [data for data in outputs if not SHOWS_NOTHING.fullmatch(data)]
    assert len(frames) > 10
    assert [frame for frame in frames if not Cells(*CELLS).take(frame)] == []
    whole = pyte.Screen(*CELLS)
    pyte.Stream(whole).feed("".join(outputs))
    assert whole.display == shown.screen.display
    assert whole.buffer == shown.screen.buffer
