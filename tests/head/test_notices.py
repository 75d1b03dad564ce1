"""Notices: to a command or a webhook, and never in the way."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gputui.head import notices
from gputui.head.notices import Notices, deliver
from gputui.model.snapshot import Event, RunState, RunStatus, Severity
from tests.clusters import Clusters

RUN = RunStatus("svd-1", "svd", (("rows", "3"),), RunState.DONE, 1.0, 3.0, user="ann")


def event(subject: str, kind: str, severity: Severity = Severity.INFO) -> Event:
    return Event(1, 2.0, severity, subject, kind, "words")


def told(target: str) -> tuple[Notices, list[str]]:
    """Return notices that know one run, and the texts that they tell of."""
    texts: list[str] = []
    made = Notices(target, "lab", {"svd-1": RUN}.get, lambda *words: texts.append(words[-1]))
    return made, texts


@pytest.mark.parametrize(
    ("happened", "noticed"),
    [
        (event("h:gpu0", "alarm"), True),
        (event("h:gpu0", "recovered"), True),
        (event("h:gpu0", "crash loop", Severity.ERROR), True),
        (event("run svd-1", "done"), True),
        (event("run svd-1", "running"), False),
        (event("h", "connected"), False),
    ],
)
def test_alarms_errors_and_ends_of_runs_are_worth_a_notice(happened: Event, noticed: bool) -> None:
    assert notices.is_notice(happened) == noticed


async def test_a_command_gets_each_notice_as_an_object_on_stdin(tmp_path: Path) -> None:
    said = tmp_path / "said"
    made, texts = told(f"cat >> {said}; echo >> {said}")
    made.happened(event("run svd-1", "done"))
    made.happened(event("h:gpu0", "alarm", Severity.WARNING))
    await made.close()
    ended, alarm = map(json.loads, said.read_text().splitlines())
    assert (ended["cluster"], ended["kind"], ended["at"]) == ("lab", "done", 2.0)
    assert ended["run"]["parameters"] == {"rows": "3"} and ended["run"]["user"] == "ann"
    assert (alarm["subject"], alarm["severity"], alarm["run"]) == ("h:gpu0", "warning", None)
    assert texts == []


class Webhook(BaseHTTPRequestHandler):
    """Answers 503 once, then takes what comes."""

    bodies: list[Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(json.loads(body))
        self.send_response(503 if len(self.bodies) == 1 else 204)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def webhook() -> Iterator[str]:
    Webhook.bodies = []
    with HTTPServer(("127.0.0.1", 0), Webhook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/secret-path"
        server.shutdown()


async def test_a_webhook_that_fails_is_tried_again(
    webhook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "TRIES_AFTER_S", (0.0, 0.0))
    made, texts = told(webhook)
    made.happened(event("h:gpu0", "alarm"))
    await made.close()
    assert [body["kind"] for body in Webhook.bodies] == ["alarm", "alarm"]
    assert texts == []


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("exit 3", "exit status 3"),
        ("echo no room >&2; exit 1", "no room"),
        ("http://127.0.0.1:1/secret-path", "could not be reached"),
    ],
)
async def test_what_cannot_be_delivered_is_an_event_without_the_target(
    target: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "TRIES_AFTER_S", (0.0,))
    made, texts = told(target)
    made.happened(event("h:gpu0", "alarm"))
    await made.close()
    (text,) = texts
    assert why in text and "secret-path" not in text


async def test_one_that_hangs_is_ended_with_all_that_it_started() -> None:
    async with asyncio.timeout(10):
        assert await deliver("sleep 1000 & sleep 1000", b"{}", 0.3) == "it took over 0.3 s"


async def test_a_webhook_that_never_answers_is_left_after_its_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        async with asyncio.timeout(20):
            why = await deliver(url, b"{}", 0.5)
    assert why == "the webhook could not be reached: TimeoutError"


async def test_a_hanging_command_delays_no_event_and_the_end_by_a_bound_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notices, "LAST_S", 0.2)
    made, _ = told("sleep 1000")
    for _ in range(10 * notices.WAITING):
        made.happened(event("h:gpu0", "alarm"))
    async with asyncio.timeout(5):
        await made.close()


async def test_a_head_tells_of_an_alarm(clusters: Clusters, tmp_path: Path) -> None:
    said = tmp_path / "said"
    cluster = await clusters.start(
        "nowhere.invalid gpus=none", notify=f"cat >> {said}; echo >> {said}"
    )
    await cluster.until(lambda: said.exists() and said.read_text().endswith("\n"))
    first = json.loads(said.read_text().splitlines()[0])
    assert (first["subject"], first["severity"]) == ("nowhere.invalid", "error")
