"""A GPU's NVLinks and PCIe lanes, from NVML: their bandwidth, and their traffic.

Asked once a GPU, and the counters of what went over NVLink with the slow readings: on an H200 they
take 1.4 ms. Source: NVML API, nvmlDeviceGetFieldValues, nvmlDeviceGetP2PStatus.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gputui.model.readings import Interconnect

Ask = Callable[..., Any]
"""Calls a function of NVML, as `Nvml.ask` does."""

NVLINK_SPEED_MBPS = 164
NVLINK_SENT_KIB, NVLINK_RECEIVED_KIB = 138, 139
"""NVML_FI_DEV_…; the counters are of all links where the scope is `ALL_LINKS`."""
ALL_LINKS = 0xFFFFFFFF
MOST_NVLINKS = 18
P2P_OVER_NVLINK = 2
LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""PCIe generation → bytes per second of a lane, after encoding."""
NVLINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""NVML_NVLINK_VERSION_… → generation: 2.0 and 2.2 are 2."""


def interconnect(ask: Ask, handle: Any, others: Sequence[tuple[str, Any]]) -> Interconnect:
    """Read a GPU's links; `others` are the labels and handles of this host's other GPUs."""
    links = list(_links_up(ask, handle))
    version = ask("nvmlDeviceGetNvLinkVersion", handle, links[0]) if links else None
    each_mbps = _field(ask, handle, NVLINK_SPEED_MBPS) if links else None
    generation = ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
    lane = LANE_BYTES_PER_S.get(generation)
    return Interconnect(
        nvlinks=len(links),
        nvlink_generation=None if version is None else NVLINK_GENERATIONS.get(version),
        nvlink_bytes_per_s=None if each_mbps is None else len(links) * each_mbps * 1e6,
        nvlink_peers=tuple(
            label
            for label, other in others
            if ask("nvmlDeviceGetP2PStatus", handle, other, P2P_OVER_NVLINK) == 0
        ),
        pcie_generation=generation,
        pcie_width=width,
        pcie_bytes_per_s=lane * width if lane and width else None,
    )


def _links_up(ask: Ask, handle: Any) -> Iterator[int]:
    for link in range(MOST_NVLINKS):
        state = ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            return
        if state:
            yield link


def _field(ask: Ask, handle: Any, field: int, scope: int = 0) -> int | None:
    """Return a field's value; None where this GPU has none."""
    values = ask("nvmlDeviceGetFieldValues", handle, [(field, scope)])
    if not values or values[0].nvmlReturn != 0:
        return None
    return int(values[0].value.ullVal)


class NvlinkMeter:
    """Measures the traffic of a GPU's NVLinks, both ways together."""

    def __init__(self, ask: Ask, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._handle = handle
        self._clock = clock
        self._last: tuple[float, int] | None = None

    def bytes_per_s(self) -> float | None:
        """Return the rate since the last call; None at first, and where NVML does not count."""
        fields = [(NVLINK_SENT_KIB, ALL_LINKS), (NVLINK_RECEIVED_KIB, ALL_LINKS)]
        values = self._ask("nvmlDeviceGetFieldValues", self._handle, fields)
        if not values or any(each.nvmlReturn for each in values):
            return None
        before = self._last
        self._last = now = (self._clock(), sum(int(each.value.ullVal) for each in values))
        if before is None or now[0] <= before[0] or now[1] < before[1]:
            return None
        return (now[1] - before[1]) * 1024 / (now[0] - before[0])
