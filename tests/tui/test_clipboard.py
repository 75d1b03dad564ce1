"""What is copied is what is under the cursor, and a terminal that takes nothing is named."""

import os
import shutil
import subprocess
import tempfile

import pytest

from gputui.tui.terminal import refuses_copies
from tests.tui.still import Still


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "STY", "VTE_VERSION", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


async def test_a_gpus_page_copies_its_uuid() -> None:
    async with Still().showing("h:gpu0", size=(100, 24)) as on:
        await on.press(["j", "y"], "copied: h:gpu0")
        await on.press(["enter"], "PID")
        await on.press("y", "copied: GPU-h-0")
        assert on.app.clipboard == "GPU-h-0"


async def test_a_terminal_that_takes_no_copies_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    async with Still().showing("h:gpu0", size=(100, 24)) as on:
        await on.press("y", "not copied, a console has no clipboard: h")


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
@pytest.mark.parametrize(("setting", "taken"), [("on", True), ("external", False), ("off", False)])
def test_tmux_is_asked_whether_it_takes_copies(setting: str, taken: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        server = ["tmux", "-S", f"{folder}/tmux", "-f", "/dev/null"]
        session = ["new-session", "-d", "cat", ";", "set", "-s", "set-clipboard", setting]
        subprocess.run([*server, *session], check=True)
        try:
            environ = {**os.environ, "TMUX": f"{folder}/tmux,1,0", "TERM": "tmux-256color"}
            assert (refuses_copies(environ) == "") is taken
        finally:
            subprocess.run([*server, "kill-server"], check=False)
