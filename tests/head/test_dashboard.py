"""Dask's dashboard answers browsers on this machine, and no page of another site."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from gputui.head.scheduler.scheduler import Scheduler
from gputui.head.scheduler_process import make_certificate
from gputui.protocol.scheduler import ConfigureScheduler


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    (tmp_path / "scratch").mkdir()
    configuration = ConfigureScheduler(
        "127.0.0.1",
        0,
        make_certificate(),
        1.0,
        str(tmp_path / "scratch"),
        dashboard_port=0,
    )
    async with Scheduler(configuration) as scheduler:
        yield scheduler.services["dashboard"].port


async def status(port: int, **headers: str) -> int:
    request = HTTPRequest(f"http://127.0.0.1:{port}/status", headers=headers)
    return (await AsyncHTTPClient().fetch(request, raise_error=False)).code


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "localhost:9999"])
async def test_a_browser_here_or_behind_a_tunnel_is_answered(port: int, host: str) -> None:
    assert await status(port, Host=host.format(port)) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
    ],
)
async def test_a_page_of_another_site_is_refused(port: int, headers: dict[str, str]) -> None:
    assert await status(port, **headers) == 403


async def test_a_websocket_of_another_site_is_refused(port: int) -> None:
    request = HTTPRequest(
        f"ws://127.0.0.1:{port}/status/ws", headers={"Origin": "http://evil.example"}
    )
    with pytest.raises(HTTPClientError, match="403"):
        await websocket_connect(request)
