"""Keep a scheduler running: a new one on the same port where one died, as far as that helps.

A cluster that ends with its starter ends with its scheduler, too: results are lost then, and
pending requests fail with the reason.
"""

import time
from typing import Protocol

from gputui.folders import scheduler_scratch_folder
from gputui.head.certificate import Certificate
from gputui.head.scheduler_process import SchedulerProcess, StartScheduler
from gputui.model.snapshot import SchedulerStatus, Severity
from gputui.protocol import VERSION
from gputui.protocol.scheduler import ConfigureScheduler, Counts, SchedulerStarted
from gputui.protocol.starter import ConfigureHead

LOOPBACK = "127.0.0.1"
REPORT_INTERVAL_S = 1.0
DEATHS = 3
DEATHS_WITHIN_S = 60.0
"""A scheduler that died more often than that within this time is not started again."""


class SchedulerRunnerListener(Protocol):
    """Called when something happens to the scheduler: implemented by the head."""

    def scheduler_listens(self, port: int, *, again: bool) -> None:
        """One listens now; `again` when it takes the place of one that died."""

    def counts_taken(self, counts: Counts) -> None:
        """It counted."""

    def workers_retired(self, names: tuple[str, ...]) -> None:
        """A Dask client had it retire these."""

    def scheduler_failed(self, reason: str, *, closed: bool) -> None:
        """There will be none; `closed` when a Dask client had it close."""

    def scheduler_died(self) -> None:
        """It died, and another one is to be started with `SchedulerRunner.start`."""

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Record an event."""


class SchedulerRunner:
    """The scheduler of one cluster, whichever process it is."""

    def __init__(
        self,
        config: ConfigureHead,
        cluster_id: str,
        *,
        local_only: bool,
        listener: SchedulerRunnerListener,
        start: StartScheduler,
    ) -> None:
        self.address = ""
        self.dashboard = ""
        """`tls://host:port` as this machine reaches it; "" before it listens."""
        self._config = config
        self._cluster_id = cluster_id
        self._host = LOOPBACK if local_only else ""
        self._listener = listener
        self._start = start
        self._port = config.scheduler_port
        self._certificate: Certificate | None = None
        self._deaths: list[float] = []
        self.process = self._new_process()

    async def start(self) -> None:
        """Start a process, which imports until it is configured."""
        if self.address:
            self.process = self._new_process()
        await self.process.start()
        if self._certificate is not None:
            self.configure(self._certificate)

    def configure(self, certificate: Certificate) -> None:
        """Have it listen, with this certificate."""
        self._certificate = certificate
        self.process.configure(
            ConfigureScheduler(
                version=VERSION,
                host=self._host,
                port=self._port,
                certificate_pem=certificate.certificate_pem,
                key_pem=certificate.key_pem,
                dask_config_json=self._config.dask_config_json,
                report_interval_s=REPORT_INTERVAL_S,
                scratch=str(scheduler_scratch_folder(self._cluster_id)),
                dashboard_address=self._config.dashboard_address,
            )
        )

    @property
    def status(self) -> SchedulerStatus:
        """The scheduler's present status."""
        return self.process.status(self.address)

    def scheduler_started(self, started: SchedulerStarted) -> None:
        """Keep its port, for one that may have to take its place."""
        again, self._port = bool(self.address), started.port
        self.address, self.dashboard = f"tls://{LOOPBACK}:{started.port}", started.dashboard
        where = f"port {started.port}"
        text = f"{where}, dashboard {started.dashboard}" if started.dashboard else where
        self._listener.tell(Severity.INFO, "scheduler", "started", text)
        self._listener.scheduler_listens(started.port, again=again)

    def counts_taken(self, counts: Counts) -> None:
        """Pass the counts on."""
        self._listener.counts_taken(counts)

    def workers_retired(self, names: tuple[str, ...]) -> None:
        """Report workers that a Dask client retired."""
        self._listener.workers_retired(names)

    def scheduler_was_busy(self, seconds: float) -> None:
        """Record that its loop did not answer for a while."""
        text = f"its loop did not answer for {seconds:.1f} s; workers went on"
        self._listener.tell(Severity.WARNING, "scheduler", "busy", text)

    def scheduler_ended(self, reason: str, *, closed: bool) -> None:
        """Have another one started where that may help."""
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < DEATHS_WITHIN_S] + [now]
        lasting = self._config.stays and self.address and len(self._deaths) <= DEATHS
        if closed or not lasting:
            self._listener.scheduler_failed(reason, closed=closed)
            return
        self._listener.tell(Severity.ERROR, "scheduler", "lost", f"{reason}; another one starts")
        self._listener.scheduler_died()

    def _new_process(self) -> SchedulerProcess:
        return SchedulerProcess(self._cluster_id, REPORT_INTERVAL_S, self, self._start)
