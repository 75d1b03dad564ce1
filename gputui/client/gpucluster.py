"""`GPUCluster`: a cluster from Python, started with it and ended with it; and `connect`."""

import asyncio
import logging
import re
import weakref
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from distributed.core import Status
from tornado.ioloop import IOLoop

from gputui.client.head_connection import HeadConnection
from gputui.client.head_process import HeadProcess
from gputui.client.keywords import seconds, translate, whole_number
from gputui.client.running import RunningCluster
from gputui.client.sources import check_wanted, read_hosts
from gputui.client.start import check_enough, spawn_head, workers_up
from gputui.engine.dask_settings import given_json
from gputui.errors import ClusterTimeoutError, HeadError, UsageError
from gputui.groups import members
from gputui.model.hosts import parse_hosts
from gputui.model.readings import NOTHING_WANTED
from gputui.model.snapshot import HostStatus
from gputui.protocol.connection_file import chosen, find_cluster, running_clusters
from gputui.protocol.starter import ConfigureHead
from gputui.settings import load_settings

logger = logging.getLogger("gputui")


class GPUCluster(RunningCluster):
    """Workers on the GPUs of these hosts, one each, for `dask.distributed.Client(cluster)`.

    `hosts` is the path of a hosts file, the text of one, or its lines; None is this machine, its
    GPUs or, where it has none, its CPUs. The constructor (with `asynchronous=True`: awaiting it)
    returns when `workers` (or `n_workers`) are up or no more will come. Other `keywords` are those
    of `LocalCluster` and `LocalCUDACluster` that mean something here, and fields of
    `protocol.starter.ConfigureHead`: `lease_s`, `busy`, `scheduler_port` and so on.

    Raises HostsError for a bad line, UsageError for a keyword that means nothing here,
    ClusterError with every host's reason when fewer than `min_workers` come up; one that is a
    TimeoutError when they are not up after `timeout`, in seconds or as "15s".
    """

    def __init__(
        self,
        hosts: str | Path | Iterable[str] | None = None,
        workers: int | None = None,
        *,
        n_workers: int | None = None,
        name: str | None = None,
        min_workers: int = 1,
        timeout: float | str | None = None,
        asynchronous: bool = False,
        loop: IOLoop | None = None,
        **keywords: Any,
    ) -> None:
        self.status = Status.closed  # until there is something to close
        given = read_hosts(hosts, "hosts")
        workers = whole_number("workers", workers)
        n_workers = whole_number("n_workers", n_workers)
        min_workers = whole_number("min_workers", min_workers) or 0
        seconds("timeout", timeout)  # it can be read
        if None not in (workers, n_workers) and workers != n_workers:
            raise UsageError(f"workers={workers} and n_workers={n_workers}: give one of them")
        meant = translate(keywords)
        listed = parse_hosts(meant.hosts(given.text), given.source or "hosts", members)
        wanted = meant.settings.get("wanted", NOTHING_WANTED)
        check_wanted(wanted, listed, lambda option: option.replace("-", "_"))
        settings = {"cpu_fallback": hosts is None} | load_settings().keywords() | meant.settings
        self.failed_hosts: tuple[HostStatus, ...] = ()
        """Hosts that could not be used, with their reasons."""
        self._workers = workers if n_workers is None else n_workers
        self._min_workers = (
            min_workers if self._workers is None else min(min_workers, self._workers)
        )
        self._timeout = timeout
        self._process = spawn_head(
            ConfigureHead(
                name=name or given.name,
                numbered=name is None,
                hosts_text=meant.hosts(given.text),
                hosts_source=given.source,
                workers=self._workers,
                dask_config_json=meant.dask_json(given_json()),
                **settings,
            )
        )
        self._finalizer = weakref.finalize(self, HeadProcess.end, self._process)
        try:
            super().__init__(self._open_head, asynchronous=asynchronous, loop=loop)
        except BaseException:
            self._finalizer()
            raise

    async def _start(self) -> None:
        try:
            async with asyncio.timeout(seconds("timeout", self._timeout)):
                await self._attach()
                # With none wanted: until a host is ready, so that `scale(cores=…)` knows a worker's
                # size.
                number = 1 if self._workers == 0 else self._workers
                async with await self._watching("command") as connection:
                    settled = self._settle(await workers_up(connection, number, self._warn))
                check_enough(settled, self._min_workers)
                self.failed_hosts = settled.failed_hosts
        except TimeoutError:
            await self._close()
            raise ClusterTimeoutError(f"the cluster was not up after {self._timeout}") from None
        except BaseException:
            await self._close()
            raise

    async def _open_head(self, frontend: str) -> HeadConnection:
        return await HeadConnection.open(
            await asyncio.to_thread(self._process.opened), frontend=frontend
        )

    def _warn(self, problem: str) -> None:
        self._log(problem)
        logger.warning("%s", problem)

    async def _let_go(self) -> None:
        await super()._let_go()
        if self._at_exit:
            self._finalizer()
        else:
            await asyncio.to_thread(self._finalizer)

    async def _shutdown(self) -> None:
        await self._close()


def connect(
    name: str | None = None, *, asynchronous: bool = False, loop: IOLoop | None = None
) -> RunningCluster:
    """Take hold of a cluster that runs on this machine; of the only one without a name.

    `user@login:NAME` is one on another machine, reached over SSH with the keys that need no
    question. Raises HeadError when no cluster has that name.
    """
    if name is not None and re.search("[@:]", name) and not find_cluster(name):
        from gputui.client.remote_head import RemoteHead, nobody

        if (head := RemoteHead.named(name, nobody)) is not None:
            return RunningCluster(head.open, asynchronous=asynchronous, loop=loop)
    try:
        cluster = chosen(running_clusters(), name)
    except UsageError as error:
        raise HeadError(str(error)) from None
    here = partial(HeadConnection.open, cluster.socket)
    return RunningCluster(here, asynchronous=asynchronous, loop=loop)
