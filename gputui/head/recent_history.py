"""The last hour of every GPU, host and CPU worker, kept in the head for screens that attach.

A frontend gets one `HistoryTaken` a host after it has attached, and goes on from the snapshots by
itself.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from gputui.model.series import FINE_S, NOTHING, Row, of_device, of_host, of_worker
from gputui.model.snapshot import HostState, HostStatus, WorkerStatus
from gputui.protocol.frontend import HistoryTaken

if TYPE_CHECKING:
    from gputui.model.history import History


class RecentHistory:
    """The readings of every host."""

    def __init__(
        self,
        hosts: Callable[[], Iterable[HostStatus]],
        cpu_workers: Callable[[], Iterable[WorkerStatus]] = tuple,
    ) -> None:
        self._hosts, self._cpu_workers = hosts, cpu_workers
        self._history: History | None = None
        self._keys: dict[str, tuple[str, ...]] = {}
        """Of each host, by its name."""

    async def run(self) -> None:
        """Take a row of everything each second, until cancelled."""
        await asyncio.to_thread(self._make)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self.take(time.time())
            due = max(due + FINE_S, loop.time())
            await asyncio.sleep(due - loop.time())

    def take(self, at: float) -> None:
        """Take the next row; hosts that are gone are forgotten."""
        on_hosts: dict[str, list[WorkerStatus]] = defaultdict(list)
        for worker in self._cpu_workers():
            on_hosts[worker.host].append(worker)
        keys: list[str] = []
        rows: list[Row] = []
        self._keys = {}
        for host in self._hosts():
            workers = on_hosts.get(host.name, ())
            devices = [device.uuid for device in host.devices]
            own = (host.name, *devices, *[worker.name for worker in workers])
            self._keys[host.name] = own
            keys += own
            if host.state is HostState.READY:
                rows.append(of_host(host.reading))
                rows += [*map(of_device, host.devices), *map(of_worker, workers)]
            else:
                rows += [NOTHING] * len(own)
        self._make().add(at, tuple(keys), rows)

    def taken(self) -> Iterator[HistoryTaken]:
        """Yield the history, a message a host."""
        for host in tuple(self._keys):
            if (keys := self._keys.get(host)) is not None:
                yield HistoryTaken(**asdict(self._make().taken(host, keys)))

    def _make(self) -> "History":
        if self._history is None:
            from gputui.model.history import History

            self._history = History()
        return self._history
