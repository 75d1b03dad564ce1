"""Dask's scheduler as a gputui cluster runs it: TLS, no HTTP server, and a sample of its tasks.

Its dashboard, where one is asked for, is for browsers on this machine, and pages that it served. A
page of another site that a browser has open can send requests to loopback, too (DNS rebinding,
cross-site WebSockets); its Host or Origin gives it away.
"""

from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.serialize import ToPickle
from distributed.utils import key_split
from tornado.httputil import HTTPServerRequest
from tornado.routing import AnyMatches, Matcher, Rule, RuleRouter
from tornado.web import Application, ErrorHandler

from gputui.engine import tls
from gputui.engine.overrides import overriding
from gputui.engine.sent_task import SentTask
from gputui.errors import HeadError, UsageError
from gputui.model.snapshot import TaskSpan
from gputui.protocol.scheduler import ConfigureScheduler, FromScheduler, RetiredByClient

MAX_SPANS = 1_000
"""Between two reports; shared out evenly among the workers."""


SEND_EVERY_S = 0.0005
"""How long messages to a worker are gathered. Dask's 5 ms are what each task of a chain waits."""


@overriding(add_worker="self scheduler worker")
class SendSooner(SchedulerPlugin):  # type: ignore[misc]
    """Makes a scheduler send its decisions to workers at once."""

    name = "gputui-send-sooner"

    def add_worker(self, scheduler: distributed.Scheduler, worker: str) -> None:
        """Change how long messages to a new worker are gathered."""
        scheduler.stream_comms[worker].interval = SEND_EVERY_S


@overriding(
    start_http_server="self routes dashboard_address default_port ssl_options",
    retire_workers="self workers names close_workers remove stimulus_id kwargs",
    restart_workers="self workers client timeout wait_for_workers on_error stimulus_id",
    identity="self n_workers",
    register_nanny_plugin="self comm plugin name idempotent",
    valid_workers="self ts",
    _task_to_msg="self ts",
    handle_task_finished="self key worker stimulus_id msg",
    handle_task_erred="self key stimulus_id msg",
)
class Scheduler(distributed.Scheduler):  # type: ignore[misc]
    """A scheduler without an HTTP server, unless a dashboard was asked for.

    Dask reads a server's settings under the name of its class: `distributed.scheduler.…`.
    """

    def __init__(self, config: ConfigureScheduler) -> None:
        address = config.dashboard_address and checked_address(config.dashboard_address)
        self.target_duration_s: float | None = None
        """In what time an adaptive cluster is to do its work; None is as Dask is configured."""
        self.tell_head: Callable[[FromScheduler], None] = lambda message: None
        """Sends a message to the head."""
        self._serves_http = bool(address)
        self._spans: list[TaskSpan] = []
        self._spans_left: Counter[str] = Counter()
        routes = dask.config.get("distributed.scheduler.http.routes") if self._serves_http else []
        with dask.config.set({"distributed.scheduler.http.routes": routes}):
            super().__init__(
                host=config.host,
                port=config.port,
                protocol="tls",
                security=tls.security(config.certificate_pem, config.key_pem),
                dashboard=self._serves_http,
                dashboard_address=address or None,
                local_directory=config.scratch,
                needs_workdir=False,
            )
        self.add_plugin(SendSooner())
        Path(self.local_directory).chmod(0o700)

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Serve HTTP only where a dashboard was asked for.

        distributed 2026.8 listens even with `dashboard=False`.
        """
        if self._serves_http:
            super().start_http_server(*args, **kwargs)
            self.http_server.request_callback = guarded(self.http_application)

    async def retire_workers(
        self,
        workers: list[str] | None = None,
        *,
        close_workers: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Retire workers; the head is notified of those that a client closes.

        Their agents would start them again, as they do after `client.restart()`.
        """
        retired: dict[str, Any] = await super().retire_workers(
            workers, close_workers=False, **options
        )
        if close_workers and (gone := [r for r in retired.values() if "name" in r]):
            self.tell_head(RetiredByClient(tuple(str(each["name"]) for each in gone)))
        return retired

    async def restart_workers(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Close workers, which their agents start again, and wait for that where asked."""
        said = await super().restart_workers(*args, **kwargs)
        return {address: "OK" if how == "removed" else how for address, how in said.items()}

    def identity(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return Dask's answer with what clients expect of every scheduler.

        They restart workers only where something starts them again, and ask for the port of the
        dashboard without asking whether there is one (distributed 2026.8, `Client.dashboard_link`).
        """
        found: dict[str, Any] = super().identity(*args, **kwargs)
        found["services"].setdefault("dashboard", 0)
        for worker in found["workers"].values():
            worker["nanny"] = worker["nanny"] or "gputui's agent"
        return found

    async def register_nanny_plugin(self, comm: Any, plugin: bytes, name: str, **_: Any) -> None:
        """Refuse it: no nanny would ever run it."""
        raise UsageError(
            f"nanny plugin {name}: workers have an agent here in place of a nanny. Set variables "
            "with dask.config.set({'distributed.nanny.environ': …}) before the cluster starts or "
            "env.X=… in the hosts file, send files with client.upload_file, run code with a "
            "WorkerPlugin"
        )

    def valid_workers(self, ts: Any) -> set[Any] | None:
        """Drop a restriction to workers that are all gone; what the task needs of any still counts.

        distributed 2026.8 forgets with it the resources that a task with `allow_other_workers`
        needs, and where no other worker is there at that moment it leaves the task waiting for
        ever: a worker that comes back has another address.
        """
        wished = ts.worker_restrictions if ts.loose_restrictions else None
        if wished and not ts.host_restrictions and wished.isdisjoint(self.workers):
            ts.worker_restrictions, ts.loose_restrictions = None, False
        valid: set[Any] | None = super().valid_workers(ts)
        return valid

    def _task_to_msg(self, ts: Any) -> dict[str, Any]:
        """Return Dask's message; where a worker cannot load the task, the task fails."""
        message: dict[str, Any] = super()._task_to_msg(ts)
        assert isinstance(message["run_spec"], ToPickle)
        message["run_spec"] = ToPickle(SentTask(ts.run_spec))
        return message

    def handle_task_finished(
        self, key: Any, worker: str, stimulus_id: str, *, startstops: Any = (), **message: Any
    ) -> None:
        """Take part of those tasks into the sample, then do as Dask does."""
        self._sample(key, worker, startstops)
        super().handle_task_finished(key, worker, stimulus_id, startstops=startstops, **message)

    def handle_task_erred(self, key: Any, stimulus_id: str, **message: Any) -> None:
        """Take part of those tasks into the sample, then do as Dask does."""
        self._sample(key, message.get("worker", ""), message.get("startstops"), erred=True)
        super().handle_task_erred(key, stimulus_id, **message)

    def take_spans(self) -> tuple[TaskSpan, ...]:
        """Return the tasks sampled since the last call, once."""
        spans, self._spans = tuple(self._spans), []
        each = max(1, MAX_SPANS // max(1, len(self.workers)))
        self._spans_left = Counter(dict.fromkeys(self.workers, each))
        return spans

    def _sample(self, key: Any, worker: str, startstops: Any, *, erred: bool = False) -> None:
        if not self._spans_left[worker] or len(self._spans) >= MAX_SPANS:
            return
        for action in startstops or ():
            if action["action"] == "compute" and (state := self.workers.get(worker)):
                start = action["start"]
                duration = max(0.0, action["stop"] - start)
                self._spans_left[worker] -= 1
                self._spans.append(
                    TaskSpan(str(state.name), key_split(key), start, duration, erred)
                )


def checked_address(address: str) -> str:
    """Return where the dashboard is to listen; raises HeadError where that is not loopback.

    >>> checked_address("127.0.0.1:8787")
    '127.0.0.1:8787'
    >>> checked_address(":8787")
    Traceback (most recent call last):
    gputui.errors.HeadError: the dashboard listens on loopback only, not on ':8787': \
write 127.0.0.1:PORT, and use `ssh -L` from elsewhere
    """
    if not _is_loopback(_name(address)):
        raise HeadError(
            f"the dashboard listens on loopback only, not on {address!r}: "
            "write 127.0.0.1:PORT, and use `ssh -L` from elsewhere"
        )
    return address


def guarded(application: Any) -> RuleRouter:
    """Return an application that answers 403 to requests that other sites made."""
    refuse = Application([(r".*", ErrorHandler, {"status_code": 403})])
    return RuleRouter([Rule(_FromHere(), application), Rule(AnyMatches(), refuse)])


class _FromHere(Matcher):
    """Matches requests whose Host, and Origin where they have one, are this machine's loopback."""

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        names = [_name(request.host)]
        if origin := request.headers.get("Origin"):
            names.append(urlsplit(origin).hostname or "")
        return {} if all(map(_is_loopback, names)) else None


def _name(address: str) -> str:
    """Return the host of `host:port`, without the brackets of IPv6."""
    return urlsplit(f"//{address}").hostname or ""


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
