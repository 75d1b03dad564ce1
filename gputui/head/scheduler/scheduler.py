"""Dask's scheduler as a gputui cluster runs it: TLS, no HTTP server, and a sample of its tasks."""

from collections import Counter
from pathlib import Path
from typing import Any

import dask
from distributed.scheduler import Scheduler
from distributed.utils import key_split

from gputui import tls
from gputui.head.scheduler import dashboard
from gputui.protocol.scheduler import ConfigureScheduler
from gputui.snapshot import TaskSpan

MAX_SPANS = 1_000
"""Between two reports; shared out evenly among the workers."""


class ClusterScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler without an HTTP server, unless a dashboard was asked for."""

    def __init__(self, config: ConfigureScheduler) -> None:
        address = config.dashboard_address and dashboard.checked_address(config.dashboard_address)
        self.target_duration_s: float | None = None
        """In what time an adaptive cluster is to do its work; None is as Dask is configured."""
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
        # distributed 2026.8 makes it for what is uploaded, in a scheduler as in a worker. Most
        # upload nothing, and one that is killed could not remove it.
        Path(self.local_directory).rmdir()

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Serve HTTP only where a dashboard was asked for.

        distributed 2026.8 listens even with `dashboard=False`.
        """
        if self._serves_http:
            super().start_http_server(*args, **kwargs)
            self.http_server.request_callback = dashboard.guarded(self.http_application)

    async def upload_file(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Keep a file that a client uploads, in a folder that the head removes."""
        Path(self.local_directory).mkdir(mode=0o700, exist_ok=True)
        taken: dict[str, Any] = await super().upload_file(*args, **kwargs)
        return taken

    def valid_workers(self, ts: Any) -> set[Any] | None:
        """Forget a wish for workers that are all gone; what the task needs of any still counts.

        distributed 2026.8 forgets with it the resources that a task with `allow_other_workers`
        needs, and where no other worker is there at that moment it leaves the task waiting for
        ever: a worker that comes back has another address.
        """
        wished = ts.worker_restrictions if ts.loose_restrictions else None
        if wished and not ts.host_restrictions and wished.isdisjoint(self.workers):
            ts.worker_restrictions, ts.loose_restrictions = None, False
        valid: set[Any] | None = super().valid_workers(ts)
        return valid

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
        """Return the tasks sampled since the last call, and begin anew."""
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
                duration = action["stop"] - start
                self._spans_left[worker] -= 1
                self._spans.append(TaskSpan(state.name, key_split(key), start, duration, erred))
