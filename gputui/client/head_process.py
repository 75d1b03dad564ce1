"""The process of a head that is started here: configured, kept or ended.

It starts before its configuration is known, so that its Python imports while this one still does:
nothing else is imported here. A head is a Popen and no `Child`, which belongs to an event loop: it
is started before any loop runs, by callers that block, and may outlive them.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputui.errors import HeadError, UsageError
from gputui.process import IS_LINUX
from gputui.process.search_path import own_environment, own_python

if TYPE_CHECKING:
    from gputui.protocol.starter import ConfigureHead

END_S = 20.0
"""How long a head may take to stop its cluster."""
NEEDS_LINUX = (
    "clusters start on Linux, and localhost is no host here: "
    "start it where its hosts are, gputui up HOSTS --on USER@LOGIN, and gputui attach USER@LOGIN"
)


class HeadProcess(subprocess.Popen[bytes]):
    """A head that was started here; it ends with this process, unless it is kept."""

    configured = False
    """Whether it has been told what to do."""
    kept = False
    """Whether it outlives this process."""

    def __init__(self) -> None:
        """Start it in a session of its own; it waits for its configuration.

        Raises UsageError on a Mac.
        """
        if not IS_LINUX:
            raise UsageError(NEEDS_LINUX)
        self.cluster_id = os.urandom(8).hex()
        self._environment = {**os.environ, **own_environment()}
        super().__init__(
            own_python("gputui.head"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._environment, "GPUTUI_CLUSTER": self.cluster_id},
            start_new_session=True,
        )

    @property
    def up_to_date(self) -> bool:
        """Whether workers here would find all that this process finds now.

        A preset's module may have added to it as it was imported.
        """
        return self._environment == {**os.environ, **own_environment()}

    def configure(self, config: "ConfigureHead") -> None:
        """Send its configuration: it begins to reach its hosts at once."""
        from dataclasses import replace

        from gputui.protocol.typed_codec import encode

        self._say(encode(replace(config, cluster_id=self.cluster_id, starter_pid=os.getpid())))
        self.configured = True

    def opened(self) -> str:
        """Return the socket of its server, as soon as it is open; raises HeadError when it refuses.

        Blocks, about a tenth of a second.
        """
        from gputui.process.child import signal_name
        from gputui.protocol.shared import Refused
        from gputui.protocol.starter import ToStarter
        from gputui.protocol.typed_codec import decode

        assert self.stdout and self.stderr
        line = self.stdout.readline()
        if not line:
            last_log_lines = self.stderr.read().decode("utf-8", "replace").strip()
            status = self.wait()
            how = signal_name(-status) if status < 0 else f"exit status {status}"
            raise HeadError(f"the head ended as it started ({how}) {last_log_lines}".rstrip())
        self.stdout.close()
        self.stderr.close()
        message: ToStarter = decode(line, ToStarter)
        if isinstance(message, Refused):
            raise HeadError(message.reason)
        return message.socket

    def keep(self) -> None:
        """Let the cluster outlive this process."""
        from gputui.protocol.starter import Keep
        from gputui.protocol.typed_codec import encode

        self.kept = True
        self._say(encode(Keep()))
        self._hang_up()

    def end(self) -> None:
        """Have the head stop its cluster, and wait until it has; kill it if it does not."""
        assert self.stdout and self.stderr
        if not self.configured:
            self.kill()
        if self.kept:
            self.terminate()
        self._hang_up()
        import threading

        killing = threading.Timer(END_S, self.kill)
        killing.daemon = True
        killing.start()
        self.wait()  # with a bound it would look now and then
        killing.cancel()
        self.stdout.close()
        self.stderr.close()

    def _say(self, line: bytes) -> None:
        """Send a line; one that ended says so on its stdout."""
        assert self.stdin
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(line)
            self.stdin.flush()

    def _hang_up(self) -> None:
        assert self.stdin
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()


@contextlib.contextmanager
def begun_head() -> Iterator[HeadProcess | None]:
    """Yield a head that waits for its configuration, and ends with the block if it got none.

    None where none can be started, as on a Mac: the run that needs one then says why.
    """
    head = None
    with contextlib.suppress(OSError, UsageError):
        head = HeadProcess()
    try:
        yield head
    finally:
        if head is not None and not head.configured:
            head.end()
