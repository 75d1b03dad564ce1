"""How long the pilot looks whether the screen rests, after each key that it presses.

Textual's own 0.02 s, twice a key, are most of the time of a test.
"""

import pytest
from textual import _wait

LOOK_S = 0.005
REST_S = 0.001
"""Of a processor, within one look; Textual's own."""


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wait, "SLEEP_GRANULARITY", LOOK_S)
    monkeypatch.setattr(_wait, "SLEEP_IDLE", REST_S)
