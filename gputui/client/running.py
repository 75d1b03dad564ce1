"""A running cluster as Python code holds it: a `distributed.deploy.Cluster` over a head.

A subclass rather than the same methods once more: code that takes clusters asks for the class, its
widget and its tables for its attributes. What a head does is asked of the head; what a scheduler
knows comes from the scheduler, over the connection that the base class keeps. Importing this
module imports distributed.
"""

import asyncio
import atexit
import contextlib
import functools
import logging
import math
import os
import re
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dask.config
from dask.utils import parse_bytes
from distributed.client import Client, default_client
from distributed.core import Status, rpc
from distributed.deploy import Adaptive
from distributed.deploy.cluster import Cluster

from gputui.client.head_connection import HeadConnection, security
from gputui.client.keywords import amount, check_adapt, seconds, whole_number
from gputui.client.start import check_enough
from gputui.engine import wire
from gputui.engine.dask_settings import NOTEBOOK, devices_preferred, listed
from gputui.engine.overrides import overriding, require
from gputui.errors import ClusterError, ClusterTimeoutError, HeadError, UsageError
from gputui.model.plain_text import many
from gputui.process.background import Background, Shared
from gputui.protocol.frontend import (
    AwaitWorkers,
    Done,
    EventHappened,
    Request,
    RetireWorkers,
    Scale,
    SchedulerReady,
    Settled,
)
from gputui.protocol.frontend import Stop as StopCluster

logger = logging.getLogger("gputui")

if TYPE_CHECKING:
    from distributed.security import Security
    from tornado.ioloop import IOLoop

    from gputui.client.notebook import FleetWidget
    from gputui.presets import Preset

NO_LINK = re.compile(r'<a href="(?:None|[^"]*:0/status)?"[^>]*>[^<]*</a>')
"""Dask's templates link to a dashboard of everything that has none."""
LINK = re.compile(r"<a href=[^>]*>[^<]*</a>")
"""They make up the scheduler's from its address and from what this process is configured for."""

LOOK_S = 0.1
"""How often the scheduler is asked for its workers, while a caller waits for them."""

ANSWER_S = 5.0
"""How long closing a cluster waits for outstanding answers."""

CLOSE_S = 20.0
"""How long a cluster left open may delay the end of the interpreter."""


@overriding(
    scheduler_address=None,
    dashboard_link=None,
    scale="self n",
    adapt="self Adaptive kwargs",
    close="self timeout",
    _start="self",
    _watch_worker_status="self comm",
    _sync_cluster_info="self",
    _update_worker_status="self op msg",
    _wait_for_workers="self n_workers timeout",
    _close="self",
    _repr_html_="self cluster_status",
    _ipython_display_="self kwargs",
)
class RunningCluster(Cluster):  # type: ignore[misc]
    """A hold on a running cluster, from `gputui.connect`; closing it leaves the cluster running.

    Works with and without a running event loop, as Dask's own clusters do: with
    `asynchronous=True` its methods return awaitables.
    """

    _adaptive: Any

    def __init__(
        self,
        open_connection: Callable[..., Awaitable[HeadConnection]],
        *,
        asynchronous: bool = False,
        loop: "IOLoop | None" = None,
    ):
        """Hold the cluster behind a connection, which `open_connection(frontend=…)` opens."""
        super().__init__(asynchronous=asynchronous, loop=loop, quiet=True, name="not started")
        self.security: Security | None = None
        """The cluster's TLS, for `Client`; known once it was started or awaited."""
        self._asynchronous = asynchronous
        self._open_connection = open_connection
        self._connection: HeadConnection | None = None
        self._requested: frozenset[str] = frozenset()
        self._worker_size = (0, 0)
        """Threads and bytes of a worker; 0 until a host could run one."""
        self._rescaling: asyncio.Task[Any] | None = None
        """The last change of the number of workers that was asked for."""
        self._started = Shared[None]()
        self._closed = Shared[None]()
        self._tasks = Background(functools.partial(_failed, weakref.ref(self)), logged=False)
        """Requests whose answers nobody may be waiting for; they end with the head."""
        self._dropped: weakref.finalize[Any, Any] | None = None
        """Disconnects a cluster that was left open."""
        self._while_open = contextlib.ExitStack()
        """What holds in this process until the cluster is closed."""
        self._widget_shown: Any = None
        """The `FleetWidget`, once a cell has shown it."""
        self._pid = os.getpid()
        self._at_exit = False
        """Whether the interpreter ends: from then on nothing may start a thread (Python 3.12)."""
        if not asynchronous:
            self._loop_runner.start()
            try:
                self.sync(self._awaited)
            except BaseException:
                self.status = Status.closed
                self._loop_runner.stop()
                raise
        _open.add(self)

    # What Dask's clusters have

    @property
    def scheduler_address(self) -> str:
        """`tls://host:port`; "" before it was started."""
        return self._connection.address if self._connection else ""

    @property
    def dashboard_link(self) -> str:
        """The URL of Dask's dashboard, "" where none is served."""
        return self._connection.dashboard if self._connection else ""

    @property
    def workers(self) -> dict[str, dict[str, Any]]:
        """Every desired worker by name, with the scheduler's information, {} before it
        registers."""
        known = {info["name"]: info for info in self.scheduler_info["workers"].values()}
        return {name: known.get(name, {}) for name in sorted(self._requested)}

    def scale(
        self,
        n: int | None = None,
        memory: str | int | None = None,
        cores: int | None = None,
        jobs: int | None = None,
    ) -> Any:
        """Want this many workers, or so many that they have this memory and these threads.

        A job is a worker, as in dask-jobqueue. Without any of them: as many as the hosts give.
        Nothing that a worker holds is lost. Returns how many workers start and stop, and how many
        there is room for where that is fewer.
        """
        named = (whole_number("n", n), whole_number("jobs", jobs))
        wanted = [number for number in named if number is not None]
        wanted += [math.ceil(number) for number in self._workers_with(cores, memory)]
        return self._ask(Scale(0, whole_number("n", max(wanted, default=None))))

    def scale_down(self, workers: Iterable[str]) -> Any:
        """Want these workers no more, by name; those that are gone already are left out."""
        return self._ask(RetireWorkers(0, tuple(sorted(self._requested.intersection(workers)))))

    def adapt(
        self,
        Adaptive: type = Adaptive,  # noqa: N803 - Dask's word
        *,
        minimum_cores: float | None = None,
        maximum_cores: float | None = None,
        minimum_memory: str | int | None = None,
        maximum_memory: str | int | None = None,
        **options: Any,
    ) -> Any:
        """Let the number of workers follow the work; options of earlier calls hold on.

        `options` are those of `distributed.deploy.Adaptive`, which follows the work from this
        process until its `stop()`.
        """
        for name, cores, memory in (
            ("minimum", minimum_cores, minimum_memory),
            ("maximum", maximum_cores, maximum_memory),
        ):
            rounded, strictest = (math.ceil, max) if name == "minimum" else (math.floor, min)
            bounds = [rounded(number) for number in self._workers_with(cores, memory)]
            if bounds:
                given = [options[name]] if options.get(name) is not None else []
                options[name] = strictest(bounds + given)
        self._need_open()
        check_adapt(getattr(self, "_adaptive_options", {}) | options)
        return super().adapt(Adaptive, **options)

    def _workers_with(self, cores: float | None, memory: str | int | None) -> Iterator[float]:
        """Yield how many workers have these threads, and how many this memory."""
        amounts = (amount("cores", cores, float), amount("memory", memory, parse_bytes))
        for whole, of_one in zip(amounts, self._worker_size, strict=True):
            if whole is not None and not of_one:
                raise ClusterError("no host is ready yet: write how many workers are wanted")
            if whole is not None:
                yield whole / of_one

    def run(self, preset: "str | Preset", /, *, backend: str = "auto", **parameters: object) -> Any:
        """Run a preset on all workers, record it, and return its `RunResult`.

        `preset` is a name, a file as in `./mine.py:PRESET`, or a `Preset`. The run is one of the
        cluster: screens show and may cancel it, as Ctrl-C here does. Raises PresetError for a
        wrong parameter before anything starts, RunError where the computation failed.
        """
        self._need_open()
        from gputui.presets import get, parse  # a cluster without runs needs none of this
        from gputui.runs.preset_run import result_of
        from gputui.runs.run import RunRequest

        known = get(preset) if isinstance(preset, str) else preset
        given = parse(known, parameters)
        given.refuse_mistakes(backend)
        request = RunRequest(
            preset if isinstance(preset, str) else preset.name,
            given.values,
            backend,
            hosts=f"cluster {self.name}",
            workers=None,
            min_workers=1,
            quiet=True,
        )
        return self.sync(result_of, given, request, functools.partial(self._watching, "run"))

    def close(self, timeout: float | str | None = None) -> Any:
        """Detach from the cluster, which goes on."""
        closing = super().close(timeout)
        if not self.asynchronous and not self._at_exit:
            self._loop_runner.stop()
            if self._widget_shown is not None:
                self._widget_shown.settle()  # as a message of the cell that closes it
        return closing

    def shutdown(self) -> Any:
        """Stop the cluster, and wait until nothing is left of it."""
        return self.sync(self._shutdown)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._awaited().__await__()

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same cluster; Dask would compare names, which clusters share."""
        if self is other:
            return True
        if not isinstance(other, RunningCluster) or not self._connection or not other._connection:
            return False
        return self.cluster_id == other.cluster_id

    __hash__ = object.__hash__

    def _repr_html_(self, cluster_status: str | None = None) -> str:
        html: str = super()._repr_html_(cluster_status)
        link = f'<a href="{self.dashboard_link}" target="_blank">{self.dashboard_link}</a>'
        return LINK.sub(link, NO_LINK.sub("none", html))

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Show the fleet, live where anywidget is installed."""
        runs = self.status is Status.running and in_notebook() and find_spec("anywidget")
        if self._widget_shown is None and not runs:
            super()._ipython_display_(**kwargs)
            return
        if self._widget_shown is None:
            from gputui.client.notebook import FleetWidget

            self._widget_shown = FleetWidget(repr(self), weakref.WeakMethod(self.scale))
            following = self.sync(self._follow, self._widget_shown)
            if following is not None:  # asynchronous: it is shown before it is filled
                self._tasks.start(following, "showing the fleet")
        self._widget_shown.show()

    # What else one does with it

    @property
    def cluster_id(self) -> str:
        """The cluster's id, which all its processes have in their environment as GPUTUI_CLUSTER."""
        return self._head.attached.cluster_id

    # How

    async def _watching(self, frontend: str) -> HeadConnection:
        """Attach to the head once more, for its snapshots."""
        head = self._head
        connection = await HeadConnection.open(
            head.socket, frontend=frontend, snapshots=True, compressed=bool(head.where)
        )
        connection.address, connection.dashboard = head.address, head.dashboard
        connection.forward = head.forward
        return connection

    async def _follow(self, widget: "FleetWidget") -> None:
        """Have a widget show the fleet until this is closed; return once it shows it."""
        connection = await self._watching("python")
        following = self._tasks.start(widget.follow(connection), "following the fleet")
        self._while_open.callback(following.cancel)
        await widget.first()

    @property
    def _head(self) -> HeadConnection:
        if self._connection is None:
            raise HeadError("this cluster was not started: await it first")
        return self._connection

    async def _awaited(self) -> Self:
        """Start, or wait for the workers of a change that was asked for."""
        await self._started.get(self._start)
        if self._rescaling is not None:
            await asyncio.wait({self._rescaling})
            await self._up(None)
        return self

    async def _start(self) -> None:
        await self._attach()
        await self._refresh()

    async def _attach(self) -> None:
        """Take hold of the head, and of its scheduler once that listens."""
        self._connection = connection = await self._open_connection(frontend="python")
        self.security = security(connection)
        wire.register()
        if in_notebook():
            _send_modules_of_notebooks()
        self._while_open.enter_context(devices_preferred())
        if not connection.address:
            await connection.received(SchedulerReady)
        self._tasks.start(_watch_head(weakref.ref(self), connection), "following the head")
        arguments = self.security.get_connection_args("client")
        self.scheduler_comm = rpc(connection.address, connection_args=arguments)
        self._dropped = weakref.finalize(self, _hang_up, self.loop, connection, self.scheduler_comm)
        self._dropped.atexit = False
        await super()._start()
        self.name = connection.attached.name

    def _watch_worker_status(self, comm: Any) -> Coroutine[Any, Any, None]:
        """Follow the workers that come and go, without keeping this object alive for it."""
        return _watch_workers(weakref.ref(self), comm)

    async def _sync_cluster_info(self) -> None:
        """Send the scheduler the cluster's name, once: it never changes."""
        with contextlib.suppress(OSError):
            info = self._cluster_info | {"name": self._head.attached.name}
            await self.scheduler_comm.set_metadata(keys=["cluster-manager-info"], value=info)

    def _update_worker_status(self, op: str, msg: Any) -> None:
        if op != "remove" or msg in self.scheduler_info["workers"]:
            super()._update_worker_status(op, msg)
        self._tasks.start(self._refresh(), "looking at the workers")

    async def _refresh(self) -> None:
        """Fetch the desired workers."""
        with contextlib.suppress(HeadError):
            self._settle(await self._head.request(AwaitWorkers(0, 0)))

    def _settle(self, settled: Settled) -> Settled:
        """Update the workers from the head's snapshot."""
        self._requested = frozenset(settled.wanted)
        self._worker_size = settled.worker_size
        return settled

    def _need_open(self) -> None:
        if self.status in (Status.closing, Status.closed):
            raise HeadError("this cluster is closed: make another")

    def _ask(self, request: Request) -> Any:
        """Send a request to the head at once, also when the result is not awaited."""
        self._need_open()
        if self.asynchronous:
            answered = self._answered(self._head.request(request))
            self._rescaling = self._tasks.start(answered, "asking")
            return self._rescaling
        return self.sync(lambda: self._answered(self._head.request(request)))

    async def _answered(self, reply: "asyncio.Future[Done]") -> str:
        answer = await reply
        await self._refresh()
        return answer.text

    async def _wait_for_workers(
        self, n_workers: int = 1, timeout: float | str | None = None
    ) -> None:
        """Wait until so many workers are up.

        Raises ClusterError, with every reason, when no more will come, or after `timeout`, in
        seconds or as "15s". With a timeout it is a TimeoutError, as Dask's is.
        """
        number = whole_number("n_workers", n_workers)
        try:
            async with asyncio.timeout(seconds("timeout", timeout)):
                await self._up(number)
        except TimeoutError:
            up = len(self.scheduler_info["workers"])
            wanted = "the workers" if number is None else many(number, "worker")
            raise ClusterTimeoutError(f"{up} of {wanted} were up after {timeout}") from None
        except ClusterError as error:
            if timeout is None or isinstance(error, HeadError):
                raise
            raise ClusterTimeoutError(str(error)) from None

    async def _up(self, number: int | None) -> None:
        """Wait until so many lasting workers are up; None is all desired ones.

        The head knows which are starting; the scheduler, which can receive tasks.
        """
        while True:
            settled = self._settle(await self._head.request(AwaitWorkers(0, number)))
            enough = len(settled.workers) if number is None else number
            with contextlib.suppress(OSError):
                known = (await self.scheduler_comm.identity(n_workers=-1))["workers"].values()
                running = {each["name"] for each in known if each["status"] == "running"}
                up = len(running & self.observed & {*settled.workers}) >= enough
                if up and (number is not None or self.observed <= self._requested):
                    return
            adaptive = self._adaptive  # it may ask for so many yet
            if not (adaptive and adaptive.periodic_callback and enough <= adaptive.maximum):
                check_enough(settled, enough)
            await asyncio.sleep(LOOK_S)

    async def _close(self) -> None:
        """Close once, however many ask for it."""
        await self._closed.get(self._close_once)

    async def _close_once(self) -> None:
        # A client whose scheduler hung up first leaves its sender waiting for 10 ms (distributed
        # 2026.8). A loop that ends just then drops its timeout, which asyncio writes about.
        for client in list(Client._instances):
            ours = client.cluster is self and client.status == "closed"
            if ours and client.scheduler_comm is not None and client.loop is self.loop:
                client.scheduler_comm.abort()
        try:
            await super()._close()
        finally:
            self._while_open.close()
            self.status = Status.closing
            try:
                await self._let_go()
            finally:
                self.status = Status.closed

    async def _let_go(self) -> None:
        if self._dropped is not None:
            self._dropped.detach()
        if self._connection is not None:
            await self._connection.close()
        await self._tasks.finish(ANSWER_S)

    async def _shutdown(self) -> None:
        await self._head.request(StopCluster(0))
        await self._tasks.finish(ANSWER_S)
        await self._close()


require(Client, _instances=None)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return hasattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel")


def _send_modules_of_notebooks() -> None:
    """Have each Dask client that is made here give its cluster the modules next to the notebook."""
    preload = listed(dask.config.get("distributed.client.preload"))
    if NOTEBOOK not in preload:
        logging.getLogger("distributed.preloading").setLevel(logging.WARNING)
        dask.config.set({"distributed.client.preload": [*preload, NOTEBOOK]})


async def dask_setup(client: Client) -> None:
    """Send the modules next to the notebook, where a cluster of this process is the client's.

    Source: Dask's configuration reference, `distributed.client.preload`.
    """
    from gputui.runs.modules import send

    if any(client.scheduler.address == cluster.scheduler_address for cluster in _open):
        try:
            await send(client, Path.cwd())
        except (UsageError, ImportError) as error:  # distributed would log it with a traceback
            logger.warning("%s", error)


def _failed(cluster: "weakref.ref[RunningCluster]", what: str, error: Exception) -> None:
    """Warn: nobody may be waiting for it."""
    if (held := cluster()) is not None and held.status is Status.running:
        logger.warning("%s", error)


async def _watch_head(cluster: "weakref.ref[RunningCluster]", connection: HeadConnection) -> None:
    """Follow who scales the cluster, until its head is gone."""
    async for message in connection.messages():
        scaled = isinstance(message, EventHappened) and message.event.kind == "scaled"
        if scaled and (held := cluster()) is not None:
            held._tasks.start(held._refresh(), "looking at the workers")
            del held


async def _watch_workers(cluster: "weakref.ref[RunningCluster]", comm: Any) -> None:
    """Handle the scheduler's messages about workers that come and go."""
    with contextlib.suppress(OSError):
        while True:
            messages = await comm.read()
            if (held := cluster()) is None:
                break
            for op, message in messages:
                held._update_worker_status(op, message)
            del held
    await comm.close()


def _hang_up(loop: "IOLoop", connection: HeadConnection, scheduler: Any) -> None:
    """Disconnect a cluster that was dropped, in the event loop of its connections."""
    for close in (connection.close, scheduler.close_rpc):
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.add_callback(close)


_open: "weakref.WeakSet[RunningCluster]" = weakref.WeakSet()
"""Those that this process may have to close at its end."""


@atexit.register
def _close_all() -> None:
    """Close clusters left open, before the interpreter ends their event loops."""
    for cluster in list(_open):
        ours = cluster._pid == os.getpid() and not cluster._asynchronous
        if ours and cluster.status is not Status.closed:
            cluster._at_exit = True
            for close in (functools.partial(_close_clients, cluster), cluster.close):
                with contextlib.suppress(TimeoutError):
                    close(timeout=CLOSE_S)


def _close_clients(cluster: RunningCluster, timeout: float) -> None:
    """Close the default clients of a cluster that still runs.

    One that loses its scheduler leaves what it was sending behind (distributed 2026.8): the loop
    ends under it, and asyncio writes about that to stderr.
    """
    with contextlib.suppress(ValueError):  # no client is left
        while (client := default_client()).cluster is cluster and not client.asynchronous:
            client.close(timeout=timeout)
