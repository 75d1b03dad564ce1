"""Notices for people who are not at a screen: alarms and runs that end, to a command or a webhook.

A command gets the notice as a JSON object on stdin; a URL gets it as the body of a POST. Nothing
waits for them: so many notices stand in line, each is tried three times, each try has its bound,
and what cannot be delivered is an event.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gputui.model.plain_text import cut
from gputui.model.snapshot import Event, RunState, RunStatus, Severity
from gputui.process.background import Background, within
from gputui.process.child import Child

WAITING = 100
"""Notices that stand in line at most; further ones are dropped."""
TRIES_AFTER_S = (0.0, 1.0, 5.0)
TRY_S = 15.0
LAST_S = 5.0
"""How long the end of a cluster waits for its last notices."""
ALARMS = ("alarm", "recovered")
ENDED = frozenset(state for state in RunState if state.ended)


def is_notice(event: Event) -> bool:
    """Return whether an event is worth a notice: an alarm, a run's end, an error."""
    if event.subject.startswith("run "):
        return event.kind in ENDED
    return event.kind in ALARMS or event.severity is Severity.ERROR


class Notices:
    """Sends notices to `target`, a shell's command or a URL; "" sends none."""

    def __init__(
        self,
        target: str,
        cluster: str,
        run_of: Callable[[str], RunStatus | None],
        tell: Callable[[Severity, str, str, str], None],
    ) -> None:
        self._target, self._cluster, self._run_of, self._tell = target, cluster, run_of, tell
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING)
        self._tasks = Background(lambda name, error: None)  # it is logged
        if target:
            self._tasks.start(self._send_all(), "sending notices")

    def happened(self, event: Event) -> None:
        """Put an event in line, where it is worth a notice."""
        if self._target and is_notice(event) and not self._waiting.full():
            self._waiting.put_nowait(json.dumps(self._notice(event)).encode())

    def _notice(self, event: Event) -> dict[str, Any]:
        """Return an event as others read it: `gputui help metrics`."""
        run = self._run_of(event.subject.removeprefix("run "))
        return {
            "cluster": self._cluster,
            "at": event.at,
            "severity": event.severity,
            "subject": event.subject,
            "kind": event.kind,
            "text": event.text,
            "run": None
            if run is None
            else {
                "id": run.id,
                "preset": run.preset,
                "parameters": dict(run.parameters),
                "state": run.state,
                "user": run.user,
                "started_at": run.started_at,
                "ended_at": run.ended_at,
                "words": cut(run.words, 2_000),
                "usage": None if run.usage is None else asdict(run.usage) | {"devices": []},
            },
        }

    async def _send_all(self) -> None:
        while True:
            notice = await self._waiting.get()
            for after_s in TRIES_AFTER_S:
                await asyncio.sleep(after_s)
                if not (failed := await deliver(self._target, notice, TRY_S)):
                    break
            else:
                self._tell(Severity.WARNING, "cluster", "notice failed", failed)
            self._waiting.task_done()

    async def close(self) -> None:
        """Send what stands in line, within a bound."""
        await within(LAST_S, self._waiting.join())
        await self._tasks.close()


async def deliver(target: str, notice: bytes, bound_s: float) -> str:
    """Send a notice once; return why that failed, or ""."""
    if target.startswith(("http://", "https://")):
        return await asyncio.to_thread(_post, target, notice, bound_s)
    with tempfile.TemporaryFile() as stdin:
        stdin.write(notice)
        stdin.seek(0)
        try:
            child = Child(["/bin/sh", "-c", target], stdin=stdin, own_session=True)
        except OSError as error:
            return f"{error.strerror}"
    try:
        status = await child.wait(bound_s)
    finally:
        await child.end(0.0, None)
    return f"it took over {bound_s:g} s" if status is None else child.reason if status else ""


def _post(url: str, notice: bytes, bound_s: float) -> str:
    """Post a notice; no message has the URL, which may be a secret."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json", "User-Agent": "gputui"}
    try:
        with urlopen(Request(url, notice, headers, method="POST"), timeout=bound_s):
            return ""
    except HTTPError as error:
        return f"the webhook answered {error.code}"
    except (OSError, ValueError, HTTPException) as error:
        said = getattr(error, "reason", None) or type(error).__name__
        return f"the webhook could not be reached: {said}"
