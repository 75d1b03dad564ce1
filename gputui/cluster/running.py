"""A running cluster as Python code holds it: what `dask.distributed.Client` accepts as one.

Works with and without a running event loop, as Dask's own clusters do: with
`asynchronous=True` its methods return awaitables.
"""

import asyncio
import atexit
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Self

from gputui import cupy_arrays
from gputui.cluster.link import GONE, HeadLink, security
from gputui.cluster.start import check_enough
from gputui.errors import HeadError
from gputui.protocol.frontend import (
    Adapt,
    AwaitWorkers,
    Reply,
    Request,
    Scale,
    SchedulerReady,
    Settled,
    Stop,
)
from gputui.protocol.frontend import Stopped as ClusterStopped

if TYPE_CHECKING:
    from distributed.security import Security
    from tornado.ioloop import IOLoop


class RunningCluster:
    """A hold on a running cluster, from `gputui.connect`; closing it leaves the cluster running."""

    def __init__(self, socket: str, *, asynchronous: bool = False, loop: "IOLoop | None" = None):
        from distributed.core import Status
        from distributed.utils import LoopRunner

        self.status: Status = Status.created
        self.security: Security | None = None
        """The cluster's TLS, for `Client`; known once it was started or awaited."""
        self._socket = socket
        self._asynchronous = asynchronous
        self._runner = LoopRunner(loop=loop, asynchronous=asynchronous)
        self._link: HeadLink | None = None
        self._address = ""
        self._started: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ended_because = ""
        if not asynchronous:
            self._runner.start()
            self._run(self._awaited)
            atexit.register(_let_go, weakref.ref(self))

    # What Dask's Client asks of a cluster

    @property
    def loop(self) -> "IOLoop":
        """The event loop that this cluster and its clients share."""
        loop: IOLoop = self._runner.loop
        return loop

    @property
    def asynchronous(self) -> bool:
        """Whether methods return awaitables."""
        return self._asynchronous

    @property
    def scheduler_address(self) -> str:
        """`tls://host:port`; "" before it was started."""
        return self._address

    def __await__(self) -> Generator[Any, None, Self]:
        return self._awaited().__await__()

    def wait_for_workers(self, n_workers: int = 1, timeout: float | None = None) -> Any:
        """Wait until so many workers are up.

        Raises ClusterError, with every reason, when no more will come; TimeoutError after
        `timeout` seconds.
        """
        return self._run(self._wait_for_workers, n_workers, timeout)

    # What else one does with it

    @property
    def name(self) -> str:
        """The name to attach to it: `gputui attach NAME`."""
        return self._head.attached.name

    @property
    def cluster_id(self) -> str:
        """What every process of the cluster carries in its environment as GPUTUI_CLUSTER."""
        return self._head.attached.cluster_id

    def scale(self, n: int | None) -> Any:
        """Want this many workers; None is as many as the hosts give. Nothing is lost."""
        return self._run(self._request, Scale(0, n))

    def adapt(self, minimum: int = 0, maximum: int = 2**31) -> Any:
        """Let the number of workers follow the work."""
        return self._run(self._request, Adapt(0, minimum, maximum))

    def close(self, timeout: float | None = None) -> Any:
        """Let go of the cluster, which goes on."""
        return self._close_with(self._close)

    def shutdown(self) -> Any:
        """Stop the cluster, and wait until nothing is left of it."""
        return self._close_with(self._shutdown)

    def __enter__(self) -> Self:
        if self._asynchronous:
            raise TypeError("this cluster is asynchronous: write `async with`")
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *raised: object) -> None:
        await self._closed_by(self._close)

    def __repr__(self) -> str:
        name = self._link.attached.name if self._link else "not started"
        return f"<{type(self).__name__} {name!r} {self._address or self.status.name}>"

    def _repr_html_(self) -> str:
        import html

        return f"<code>{html.escape(repr(self))}</code>"

    # How

    @property
    def _head(self) -> HeadLink:
        if self._link is None:
            raise HeadError(self._ended_because or "this cluster was not started: await it first")
        return self._link

    async def _awaited(self) -> Self:
        if self._started is None:
            self._started = asyncio.ensure_future(self._start())
        await asyncio.shield(self._started)
        return self

    async def _start(self) -> None:
        await self._attach(self._socket)

    async def _attach(self, socket: str) -> None:
        """Take hold of the head, and wait until its scheduler listens."""
        from distributed.core import Status

        self._link = await HeadLink.open(socket, frontend="python")
        self.security = security(self._link)
        cupy_arrays.register()
        self._address = self._link.attached.address
        listens = asyncio.Event()
        self._watching = asyncio.create_task(self._watch(self._link, listens))
        if not self._address:
            await listens.wait()
        if not self._address:
            raise HeadError(self._ended_because)
        self.status = Status.running

    async def _watch(self, link: HeadLink, listens: asyncio.Event) -> None:
        """Follow where the scheduler is, and why the cluster ended."""
        self._ended_because = GONE
        async for message in link.messages():
            match message:
                case SchedulerReady(address):
                    self._address = address
                    listens.set()
                case ClusterStopped(reason):
                    self._ended_because = reason
        listens.set()

    async def _request(self, message: Request) -> Reply:
        return await self._head.request(message)

    async def _wait_for_workers(self, n_workers: int, timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            settled = await self._request(AwaitWorkers(0, n_workers))
        assert isinstance(settled, Settled)
        check_enough(settled, n_workers)

    async def _close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def _shutdown(self) -> None:
        await self._request(Stop(0))
        if self._watching is not None:
            await self._watching
        await self._close()

    def _close_with(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> Any:
        if self._returns_awaitables:
            return self._closed_by(closing)
        self._run(self._closed_by, closing)
        self._runner.stop()
        return None

    async def _closed_by(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        from distributed.core import Status

        if self.status is Status.closed:
            return
        self.status = Status.closing
        try:
            await closing()
        finally:
            self.status = Status.closed

    @property
    def _returns_awaitables(self) -> bool:
        """Whether this is called where nothing may block: Dask's client does, from the loop."""
        if self._asynchronous:
            return True
        try:
            return asyncio.get_running_loop() is getattr(self.loop, "asyncio_loop", None)
        except RuntimeError:
            return False

    def _run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Call a coroutine function: its awaitable where nothing may block, else its result."""
        if self._returns_awaitables:
            return function(*arguments)
        from distributed.utils import sync

        return sync(self.loop, function, *arguments)


def _let_go(reference: "weakref.ref[RunningCluster]") -> None:
    """Close the link that nobody closed, before the interpreter ends its loop under it."""
    from distributed.core import Status

    cluster = reference()
    if cluster is not None and cluster.status is not Status.closed:
        cluster._run(RunningCluster._close, cluster)
