"""What stands next to a worker."""

from gputui.tui.rendering.detail import beneath
from gputui.tui.widgets.logbook import LogLine

DASK = (
    "        Start worker at:     tls://127.0.0.1:38401",
    "          dashboard at:            127.0.0.1:0",
    "-------------------------------------------------",
    "               Memory:                 125.88 GiB",
    "Starting established connection to tls://127.0.0.1:33679",
)


def test_what_dask_s_worker_says_at_its_start_is_read_without_its_columns_and_rules() -> None:
    lines = beneath([], [LogLine(n, 0.0, "h:cpu0", text) for n, text in enumerate(DASK)], 80, 8)
    said = ["".join(text for text, _ in line[1:]) for line in lines]
    assert said == [
        "Start worker at: tls://127.0.0.1:38401",
        "dashboard at: 127.0.0.1:0",
        "Memory: 125.88 GiB",
        "Starting established connection to tls://127.0.0.1:33679",
    ]
