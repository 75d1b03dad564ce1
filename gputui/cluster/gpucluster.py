"""`GPUCluster`: a cluster from Python, started with it and ended with it; and `connect`."""

import asyncio
import logging
import weakref
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.cluster.running import RunningCluster
from gputui.cluster.sources import default_name, read_hosts
from gputui.cluster.start import HeadProcess, check_enough, failures, spawn_head
from gputui.connection_file import find_cluster, running_clusters
from gputui.dask_settings import given_json
from gputui.errors import ClusterError, HeadError
from gputui.hosts import parse_hosts
from gputui.protocol import VERSION
from gputui.protocol.frontend import AwaitWorkers, Settled
from gputui.protocol.starter import ConfigureHead
from gputui.settings import load_settings
from gputui.snapshot import HostStatus

if TYPE_CHECKING:
    from tornado.ioloop import IOLoop

logger = logging.getLogger("gputui")


class GPUCluster(RunningCluster):
    """Workers on the GPUs of these hosts, one each, for `dask.distributed.Client(cluster)`.

    `hosts` is the path of a hosts file, the text of one, or its lines; None is this machine, its
    GPUs or, where it has none, its CPUs. The constructor (with `asynchronous=True`: awaiting it)
    returns when `workers` are up or no more will come. Other `settings` are fields of
    `protocol.starter.ConfigureHead`: `lease_s`, `busy`, `scheduler_port` and so on.

    Raises HostsError for a bad line, ClusterError with every host's reason when fewer than
    `min_workers` come up.
    """

    def __init__(
        self,
        hosts: str | Path | Iterable[str] | None = None,
        workers: int | None = None,
        *,
        name: str | None = None,
        min_workers: int = 1,
        asynchronous: bool = False,
        loop: "IOLoop | None" = None,
        **settings: Any,
    ) -> None:
        text, source = read_hosts(hosts)
        parse_hosts(text, source or "hosts")
        known = {
            name: value
            for name, value in asdict(load_settings()).items()
            if name in ConfigureHead.__dataclass_fields__
        }
        settings = {"cpu_fallback": hosts is None, **known, **settings}
        self.failed_hosts: tuple[HostStatus, ...] = ()
        """Hosts that could not be used, with their reasons."""
        self._workers = workers
        self._min_workers = min_workers
        self._process = spawn_head(
            ConfigureHead(
                version=VERSION,
                name=name or default_name(source),
                numbered=name is None,
                hosts_text=text,
                hosts_source=source,
                workers=workers,
                dask_config_json=given_json(),
                **settings,
            )
        )
        self._finalizer = weakref.finalize(self, HeadProcess.end, self._process)
        try:
            super().__init__("", asynchronous=asynchronous, loop=loop)
        except BaseException:
            self._finalizer()
            raise

    def close(self, timeout: float | None = None) -> Any:
        """Stop the cluster, and wait until nothing is left of it."""
        return self._close_with(self._close)

    async def _start(self) -> None:
        await self._attach(await asyncio.to_thread(self._process.opened))
        settled = await self._request(AwaitWorkers(0, self._workers))
        assert isinstance(settled, Settled)
        try:
            check_enough(settled, self._min_workers)
        except ClusterError:
            await self._head.close()
            raise
        self.failed_hosts = settled.failed_hosts
        for line in failures(settled):
            logger.warning("%s", line)

    async def _close(self) -> None:
        await super()._close()
        await asyncio.to_thread(self._finalizer)

    async def _shutdown(self) -> None:
        await self._close()


def connect(
    name: str | None = None, *, asynchronous: bool = False, loop: "IOLoop | None" = None
) -> RunningCluster:
    """Take hold of a cluster that runs on this machine; of the only one without a name.

    Raises HeadError when there is none of that name.
    """
    if name is None:
        names = [connection_file.name for connection_file in running_clusters()]
        if len(names) != 1:
            running = f"these run: {', '.join(names)}" if names else "no cluster runs here"
            raise HeadError(f"which cluster? {running}")
        name = names[0]
    connection_file = find_cluster(name)
    if connection_file is None:
        raise HeadError(f"no cluster named {name!r} runs here")
    return RunningCluster(connection_file.socket, asynchronous=asynchronous, loop=loop)
