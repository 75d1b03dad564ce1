"""What the first frame waits for, and how the line of keys ends."""

import subprocess
import sys

import pytest

from tests.tui.still import Still, press, seen

END = "c run : command ? help q quit"
OWN = {"1": "z zoom", "3": "/ filter", "4": "/ filter"}


@pytest.mark.parametrize("width", [60, 80, 200])
async def test_the_line_of_keys_has_what_can_be_done_and_ends_with_run_command_help_and_quit(
    width: int,
) -> None:
    on = Still()
    async with on.app.run_test(size=(width, 24)) as pilot:
        for key in "123456":
            await press(pilot, [key], END, "0hosts" if width == 80 else "")
            views, actions = seen(pilot).splitlines()[-2:]
            assert actions.rstrip().endswith(END)
            assert width == 60 or OWN.get(key, "s sort") in actions
            assert width != 80 or views.split()[-1] == "uusers"


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
