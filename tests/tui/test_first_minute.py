"""What the first frame waits for, and how the line of keys ends."""

import subprocess
import sys

import pytest

from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still, press, seen

ENDS = dict.fromkeys((60, 80, 200), "c run : command ? help q quit")


@pytest.mark.parametrize("width", ENDS)
async def test_the_line_of_keys_always_ends_with_run_command_help_and_quit(width: int) -> None:
    on = Still(snapshot(host("h", device()), workers=(worker(),)))
    async with on.app.run_test(size=(width, 24)) as pilot:
        for key in "123456":
            await press(pilot, [key], ENDS[width])
            assert seen(pilot).splitlines()[-1].rstrip().endswith(ENDS[width])


SCREEN = "gputui.tui.app, gputui.tui.views.lists"
LATER = (
    "gputui.protocol",
    "gputui.client.head_connection",
    "gputui.tui.dialogs",
    "gputui.tui.commands.changes",
    "gputui.tui.commands.person",
    "gputui.presets",
    "gputui.folders",
    "importlib.metadata",
)


@pytest.mark.parametrize(
    ("imported", "later"),
    [(SCREEN, (*LATER, "gputui.process.procfs")), (f"gputui.cli.open, {SCREEN}", LATER)],
)
def test_the_first_frame_waits_for_no_message_dialog_or_change(
    imported: str, later: tuple[str, ...]
) -> None:
    code = f"import sys, {imported}\nprint([m for m in sys.modules if m.startswith({later})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
