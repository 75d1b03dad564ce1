"""The head's side of its child, the scheduler: start it, read its counts, know when it is busy or
why it died, and start another one on the same port as far as that helps.

The process is started before the cluster's certificate is made, which is kept in memory only: its
imports take most of a start. A cluster that ends with its starter ends with its scheduler, too:
results are lost then, and pending requests fail with the reason.
"""

import asyncio
import datetime
import importlib
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

from gputui.errors import HeadError
from gputui.fleet.addresses import LOOPBACK
from gputui.fleet.ssh.connector import IMPORTING
from gputui.folders import scheduler_scratch_folder
from gputui.model.examination import ExaminedScheduler, parse_dump
from gputui.model.snapshot import SchedulerState, SchedulerStatus, Severity
from gputui.process.background import Background, words
from gputui.process.child import Child
from gputui.process.procfs import CpuMeter, catches, process_stat
from gputui.process.search_path import own_python
from gputui.protocol.channel import TRUSTED_LINE_BYTES
from gputui.protocol.scheduler import (
    ClosedWhenIdle,
    ConfigureScheduler,
    Counts,
    FromScheduler,
    Retire,
    Retired,
    RetiredByClient,
    SchedulerStarted,
    StopScheduler,
    ToScheduler,
)
from gputui.protocol.shared import DUMP_SIGNAL, Credentials
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.typed_codec import TypedChannel

logger = logging.getLogger(__name__)

SSH_AGENT = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID"})
REPORT_INTERVAL_S = 1.0
BUSY_AFTER_S = 2.0
STOP_S = 2.0
DUMP_S = 0.3
"""How long it may take to write where its loop is."""
DEATHS = 3
DEATHS_WITHIN_S = 60.0
"""A scheduler that died more often than that within this time is not started again."""


StartScheduler = Callable[[str], Child]
"""Starts the scheduler of the cluster with this id."""


def start_scheduler(
    cluster_id: str, command: Sequence[str] = tuple(own_python("gputui.head.scheduler"))
) -> Child:
    """Start a scheduler as a child of this process.

    It has no way to this user's SSH keys: clients can have code run there (`run_on_scheduler`).
    """
    own = {name: value for name, value in os.environ.items() if name not in SSH_AGENT}
    return Child(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**own, "GPUTUI_CLUSTER": cluster_id},
        said=lambda text: logger.info("scheduler: %s", text),
    )


class SchedulerProcess:
    """The scheduler of one cluster, whichever process it is."""

    def __init__(
        self,
        config: ConfigureHead,
        *,
        host: str,
        start: StartScheduler,
        tell: Callable[[Severity, str, str, str], None],
        took: Callable[[SchedulerStarted | Counts | RetiredByClient | ClosedWhenIdle], None],
        ended: Callable[[str, bool], None],
    ) -> None:
        """Have it listen at `host`.

        `tell` records an event, `took` handles what it reports, and `ended` is called with the
        reason, and whether a Dask client closed it, when there will be no other.
        """
        self.address = ""
        """`tls://host:port` as this machine reaches it; "" before it listens."""
        self.dashboard = ""
        self.started: SchedulerStarted | None = None
        self.counts: Counts | None = None
        self._config = config
        self._host, self._port = host, config.scheduler_port
        self._start, self._tell, self._took, self._ended = start, tell, took, ended
        self._credentials: Credentials | None = None
        self._child: Child | None = None
        self._channel: TypedChannel[ToScheduler, FromScheduler] | None = None
        self._heard_at = time.monotonic()
        self._stopping = False
        self._end_reason = ""
        self._deaths: list[float] = []
        self._tasks = Background(self._failed)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start a process, which imports while it waits for its configuration."""
        self.started, self.counts = None, None
        self._child = child = self._start(self._config.cluster_id)
        self._channel = TypedChannel(
            await child.stream(), FromScheduler, line_bytes=TRUSTED_LINE_BYTES
        )
        self._end_reason, self._heard_at, self._meter = "", time.monotonic(), CpuMeter()
        self._task = self._tasks.start(self._attend(child, self._channel), "scheduler")
        if self._credentials is not None:
            self.configure(self._credentials)

    def configure(self, credentials: Credentials) -> None:
        """Have it listen, with this certificate and configuration."""
        self._credentials = credentials
        self.send(
            ConfigureScheduler(
                host=self._host,
                port=self._port,
                credentials=credentials,
                report_interval_s=REPORT_INTERVAL_S,
                scratch=str(scheduler_scratch_folder(self._config.cluster_id)),
                dashboard_port=self._config.dashboard_port,
            )
        )

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Move workers' results elsewhere and retire them; return those retired.

        Raises HeadError when there is no scheduler to do it.
        """
        if self._channel is None or self._end_reason:
            raise HeadError("there is no scheduler now")
        retired: Retired = await self._channel.ask(Retire(0, names))
        if retired.error:
            logger.warning("retiring %s: %s", ", ".join(names), retired.error)
        return retired.names

    async def examine(self) -> ExaminedScheduler:
        """Return how its process does, and where its loop is that does not answer."""
        if self._child is None or (stat := process_stat(self._child.pid)) is None:
            return ExaminedScheduler()
        child, pid = self._child, self._child.pid
        if not self.busy_s or stat.stopped or not catches(pid, DUMP_SIGNAL):
            return ExaminedScheduler(pid, stat.state)
        os.kill(pid, DUMP_SIGNAL)
        await asyncio.sleep(DUMP_S)
        dumped = parse_dump(("Stack ", *child.last_log_lines))[-1]
        return ExaminedScheduler(pid, stat.state, dumped.frames)

    async def stop(self) -> None:
        """End it; killed where it does not end by itself."""
        self._stopping = True
        if self._child is None or self._task is None:
            return
        self.send(StopScheduler())
        done, _ = await asyncio.wait({self._task}, timeout=STOP_S)
        if not done:
            await self._child.end(0.0)
            await self._task

    @property
    def busy_s(self) -> float:
        """The time for which its loop has not answered; 0 while it does."""
        quiet_s = time.monotonic() - self._heard_at - REPORT_INTERVAL_S
        return quiet_s if self.started and quiet_s > BUSY_AFTER_S else 0.0

    @property
    def status(self) -> SchedulerStatus:
        """How it is now."""
        if self._end_reason:
            return SchedulerStatus(SchedulerState.LOST, reason=self._end_reason)
        if self._task is None:
            return SchedulerStatus(SchedulerState.NONE)
        if self.started is None or self._child is None:
            return SchedulerStatus(SchedulerState.STARTING)
        busy_s, counts = self.busy_s, self.counts
        stat = process_stat(self._child.pid)
        return SchedulerStatus(
            state=SchedulerState.BUSY if busy_s else SchedulerState.RUNNING,
            address=self.address,
            pid=self._child.pid,
            busy_s=busy_s,
            tasks=counts.tasks if counts else 0,
            queued=counts.queued if counts else 0,
            clients=counts.clients if counts else 0,
            cpu_percent=self._meter.percent(stat, time.monotonic()) if stat else None,
            rss_bytes=stat.rss_bytes if stat else None,
        )

    def send(self, message: ToScheduler) -> None:
        """Send it a message; nobody gets it while there is no process."""
        if self._channel is not None:
            self._channel.send(message)

    async def _attend(
        self, child: Child, channel: TypedChannel[ToScheduler, FromScheduler]
    ) -> None:
        """Receive its messages until it ends; one that cannot be handled is logged."""
        while True:
            try:
                if (message := await channel.receive()) is None:
                    break
                self._take(message)
            except Exception:
                logger.exception("what the scheduler said could not be taken")
        await channel.close()
        await child.end(STOP_S)
        scratch = scheduler_scratch_folder(self._config.cluster_id)
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        self._end(child)

    def _take(self, message: FromScheduler) -> None:
        busy_s, self._heard_at = self.busy_s, time.monotonic()
        if busy_s:
            text = f"its loop did not answer for {busy_s:.1f} s"
            self._tell(Severity.WARNING, "scheduler", "busy", text)
        match message:
            case SchedulerStarted():
                # Another one that takes its place listens on its port, too.
                self.started, self._port, self.dashboard = message, message.port, message.dashboard
                self.address = f"tls://{LOOPBACK}:{message.port}"
                dashboard = f", dashboard {self.dashboard}" if self.dashboard else ""
                self._tell(Severity.INFO, "scheduler", "started", f"port {self._port}{dashboard}")
            case Counts():
                self.counts = message
            case Retired():
                if self._channel is not None:
                    self._channel.answered(message)
                return
        self._took(message)

    def _end(self, child: Child) -> None:
        """Fail what waits for it, and start another one where that may help."""
        reason, closed = f"the scheduler {child.reason or 'could not be ended'}", child.status == 0
        self._end_reason = reason
        if self._channel is not None:
            self._channel.leave_unanswered(HeadError(reason))
        if self._stopping:
            return
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < DEATHS_WITHIN_S] + [now]
        lasting = self._config.stays and self.address and len(self._deaths) <= DEATHS
        if closed or not lasting:
            self._ended(reason, closed)
            return
        self._tell(Severity.ERROR, "scheduler", "lost", f"{reason}; another one starts")
        self._tasks.start(self.start(), "the start of another scheduler")

    def _failed(self, name: str, error: Exception) -> None:
        """End with the scheduler: what it said could not be handled, or no other starts."""
        if not self._stopping:
            self._ended(f"{name} failed: {words(error)}", False)


COMMON_NAME = "dask-internal"
"""As `distributed.Security.temporary()` names it (distributed 2026.8)."""

VALID_FROM = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
VALID_UNTIL = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
"""A cluster's certificate ends with its head, not with a clock that jumps."""


def make_certificate(dask_config_json: str = "{}") -> Credentials:
    """Return a new certificate that is its own authority, its key, and Dask's configuration.

    It is on the curve P-256: made in a millisecond, where RSA takes 100. The first call imports
    cryptography, with its backend, which `sign` would import outside the lock (cryptography 48).
    """
    with IMPORTING:
        importlib.import_module("cryptography.hazmat.backends.openssl.backend")
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    usage = x509.KeyUsage(  # OpenSSL's strict mode (Python 3.13) requires it
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=True,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(COMMON_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Credentials(
        dask_config_json=dask_config_json,
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    )
