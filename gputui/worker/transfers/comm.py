"""The TLS comm of a worker, which lends values to the workers of its host instead of sending them.

It differs from Dask's for one exchange only, a `get_data` between two workers near each other:

    reader                                    owner
    get_data, keys                 ──────▶
                                   ◀──────    OK, values packed; what they lend is held
    copy, look whether it is held
    "OK" or AsBytes                ──────▶release; after AsBytes send the values as Dask does

The owner also releases when the comm ends. Packing and copying run in threads. Whatever fails in
the reader's copy is asked for again, so nothing there can fail Dask's own (dask/distributed#6705).
Seam: Dask's comm registry; written for distributed 2026.7.1 and 2026.8.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import dask.config
from distributed.comm.tcp import TLS
from distributed.protocol.serialize import Serialize
from distributed.sizeof import safe_sizeof

from gputui.engine.overrides import overriding
from gputui.engine.tls import guard_ports
from gputui.model.frozen import frozen
from gputui.model.usage import Way
from gputui.process.background import Background
from gputui.worker.transfers.cuda_ipc import (
    Loan,
    NoMappingError,
    Reader,
    allocations,
    mappings,
)
from gputui.worker.transfers.loans import Location, Page, Ticket, moved, say_once
from gputui.worker.transfers.packing import Parts, pack, unpack, worth_lending

THREADS = 4
CLOSE = "gputui_close_mapping"
ANSWER_S, AGAIN_S = 10.0, 0.2

_threads = ThreadPoolExecutor(THREADS, "gputui-transfers")


@frozen
class AsBytes:
    """The answer of a reader that cannot put together a value that was lent."""

    maps_device: bool
    """Whether it may be lent device memory again."""


@frozen
class Lent:
    """Sent in the place of a value that is lent."""

    ticket: Ticket
    parts: Parts


@dataclass(slots=True)
class Side:
    """This process's end of all its comms."""

    page: Page
    location: Location
    not_mapping: set[Location] = field(default_factory=set)
    """Readers that cannot map this process's device memory."""


_side: Side | None = None


def set_up(*, device: str) -> None:
    """Guard the ports of this process, and have its TLS comms lend and state where they are.

    `device` is the UUID of this process's device, "" without one.
    Where settings say `bytes`, none lends.
    """
    global _side
    guard_ports(WorkerComm)
    if dask.config.get("gputui.transfers", "auto") == "bytes":
        return
    page = Page()
    _side = Side(page, Location.here(page.descriptor, device=device))


@overriding(
    handshake_info="self",
    write="self msg serializers on_error",
    read="self deserializers",
    abort="self",
    close="self",
)
class WorkerComm(TLS):  # type: ignore[misc]
    """Dask's TLS comm between workers."""

    _asked: dict[str, Any] | None = None
    """As owner: the request that is being answered."""
    _loan: Loan | None = None
    _answer: Any = None
    """As owner: the answer as Dask would send it."""
    _asks = False
    """As reader: whether the next message answers a get_data."""

    def handshake_info(self) -> dict[str, Any]:
        """Return Dask's own handshake, and this end's location if it lends."""
        own: dict[str, Any] = super().handshake_info()
        return {**own, "gputui": asdict(_side.location)} if _side else own

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> Any:
        """Write a message; an answer to a near worker's get_data with its values lent."""
        if isinstance(msg, dict):
            if msg.get("op") == "get_data":
                self._asks = True
            elif self._asked and msg.get("status") == "OK" and serializers is None:
                msg = await self._lend(msg)
        self._asked = None
        try:
            return await super().write(msg, serializers=serializers, on_error=on_error)
        except BaseException:
            self._release()
            raise

    async def read(self, deserializers: Any = None) -> Any:
        """Read a message; an answer with its values put together."""
        if self._loan:
            return await self._read_after_lending(deserializers)
        asks, self._asks = self._asks, False
        if asks:
            return await self._read_lent(deserializers)
        msg = await super().read(deserializers)
        if isinstance(msg, dict) and msg.get("op") == "get_data":
            self._asked = msg if self._near() else None
        return msg

    def abort(self) -> None:
        """Abort the comm and release its loans."""
        self._release()
        super().abort()

    def close(self) -> Any:
        """Close the comm and release its loans."""
        self._release()
        return super().close()

    def _near(self) -> Location | None:
        """Return where the other end is, if memory can be lent there."""
        there = Location.parse(self.remote_info.get("gputui"))
        return there if _side and there and _side.location.near(there) else None

    async def _lend(self, msg: dict[str, Any]) -> dict[str, Any]:
        assert _side and self._asked
        values = {key: value.data for key, value in msg["data"].items()}
        if not any(map(worth_lending, values.values())):
            return msg
        there, address = self._near(), self._asked.get("who")
        assert there
        opens = _side.location.opens(there)
        if there.device and _side.location.device and not opens:
            say_once("from one MIG instance to another arrays go through host memory")
        maps_device = bool(opens and address and there not in _side.not_mapping)
        try:
            ticket = Ticket(_side.location, *_side.page.take())
        except OSError as error:
            say_once(f"values go as bytes: {error}")
            return msg
        loan = Loan(_side.page, ticket, Reader(address or "", there), maps_device)
        work = _threads.submit(_lent, values, loan)
        try:
            lent = await asyncio.wrap_future(work)
        except BaseException:
            work.add_done_callback(lambda _: loan.release())
            raise
        self._loan, self._answer = loan, msg
        return {**msg, "data": {key: Serialize(value) for key, value in lent.items()}}

    async def _read_after_lending(self, deserializers: Any) -> Any:
        """Read the reader's OK, or send the values as bytes first."""
        try:
            msg = await super().read(deserializers)
            if isinstance(msg, AsBytes):
                there = self._near()
                if _side and there and not msg.maps_device:
                    _side.not_mapping.add(there)
                await super().write(self._answer)
                msg = await super().read(deserializers)
            return msg
        finally:
            self._release()

    async def _read_lent(self, deserializers: Any) -> Any:
        """Read an answer and rebuild lent values; request those again that cannot be rebuilt."""
        msg = _counted(await super().read(deserializers))
        data = msg.get("data") if isinstance(msg, dict) else None
        if not isinstance(data, dict) or not any(isinstance(v, Lent) for v in data.values()):
            return msg
        try:
            return {**msg, "data": await asyncio.wrap_future(_threads.submit(_put_together, data))}
        except Exception as error:
            say_once(f"values come as bytes: {type(error).__name__}: {error}")
            again = AsBytes(maps_device=not isinstance(error, NoMappingError))
        await super().write(Serialize(again))
        return _counted(await super().read(deserializers))

    def _release(self) -> None:
        loan, self._loan, self._answer = self._loan, None, None
        if loan:
            loan.release()


def _lent(values: dict[Any, Any], loan: Loan) -> dict[Any, Any]:
    """Pack values worth lending; one that cannot be pickled so is sent as Dask does."""
    lent = dict(values)
    for key, value in values.items():
        try:
            if worth_lending(value):
                lent[key] = Lent(loan.ticket, pack(value, loan))
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__name__}"
            say_once(f"{kind} as bytes: {type(error).__name__}: {error}")
    return lent


def _counted(msg: Any) -> Any:
    """Return an answer, with the values counted that came in it as bytes."""
    data = msg.get("data") if isinstance(msg, dict) else None
    for value in data.values() if isinstance(data, dict) else ():
        if not isinstance(value, Lent):
            moved(Way.CONNECTION, safe_sizeof(value))
    return msg


def _put_together(data: dict[Any, Any]) -> dict[Any, Any]:
    return {
        key: unpack(value.parts, value.ticket) if isinstance(value, Lent) else value
        for key, value in data.items()
    }


def serve_readers(worker: Any) -> None:
    """Have a worker close mappings when owners ask it to, and ask its own readers likewise."""
    loop = asyncio.get_running_loop()
    asking = Background(lambda what, error: None)  # the memory stays mapped until the worker ends

    async def close(pid: int, page_file: int, buffer_id: int) -> None:
        await asyncio.wrap_future(_threads.submit(mappings.close, pid, page_file, buffer_id))

    async def ask(base: int, buffer_id: int, readers: frozenset[Reader]) -> None:
        await asyncio.gather(*(_ask_to_close(worker, each, buffer_id) for each in readers))
        await asyncio.wrap_future(_threads.submit(allocations.free, base))

    def begin(base: int, buffer_id: int, readers: frozenset[Reader]) -> None:
        asking.start(ask(base, buffer_id, readers), "asking readers to close a mapping")

    worker.handlers[CLOSE] = close
    allocations.ask_to_close = lambda *which: loop.call_soon_threadsafe(begin, *which)


async def _ask_to_close(worker: Any, reader: Reader, buffer_id: int) -> None:
    """Ask until the reader has closed its mapping or has ended; the driver closed it then."""
    assert _side
    owner = {"pid": _side.location.pid, "page_file": _side.location.page_file}
    while reader.location.alive():
        try:
            async with asyncio.timeout(ANSWER_S):
                await getattr(worker.rpc(reader.address), CLOSE)(**owner, buffer_id=buffer_id)
            return
        except OSError:  # TimeoutError, too
            await asyncio.sleep(AGAIN_S)
