"""Histories for tests: as a head sends them, and as a screen keeps them."""

import base64
from collections.abc import Iterable, Sequence

import numpy as np

from gputui.model.history import History
from gputui.model.readings import DeviceReading
from gputui.model.series import Row, of_device
from gputui.tui.watched import COARSE_KEPT, FINE_KEPT


def packed(rows: Iterable[Row]) -> str:
    """Return rows, each those of all keys after another, as `HistoryTaken` has them."""
    return base64.b64encode(np.array([*rows], dtype="<f2").tobytes()).decode()


class ScreensHistory(History):
    """A history that is given GPUs."""

    def __init__(self) -> None:
        super().__init__(FINE_KEPT, COARSE_KEPT)

    def read(self, devices: Sequence[DeviceReading], at: float = 0.0) -> None:
        """Take in the next reading of some GPUs."""
        keys = tuple(device.uuid for device in devices)
        self.add(at, keys, [*map(of_device, devices)], len(keys))
