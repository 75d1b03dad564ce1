"""Metrics as Prometheus reads them: its own parser judges."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gputui.errors import HeadError
from gputui.head.metrics import MetricsServer, exposition
from gputui.model.readings import DeviceReading
from gputui.protocol.frontend import Done, ReadMetrics
from tests.agent.conftest import FakeNvml
from tests.clusters import Clusters
from tests.head.test_programs import python, ran
from tests.tui.build import device, host, snapshot, worker

parser = pytest.importorskip("prometheus_client.parser")

Sample = tuple[Mapping[str, str], float]


def samples(text: str) -> dict[str, list[Sample]]:
    """Return the samples of each name."""
    found: dict[str, list[Sample]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")  # added by the parser, not by Prometheus
            found.setdefault(name, []).append((sample.labels, sample.value))
    return found


BUSY = device(
    utilization_percent=87.5, memory_used_bytes=3 * 2**30, energy_j=1234.5, sm_clock_mhz=1980.0
)


def test_a_gpu_has_the_names_and_units_of_dcgm() -> None:
    found = samples(exposition(snapshot(host("h", BUSY)), {}))
    values = {name: of[0][1] for name, of in found.items() if name.startswith("DCGM")}
    assert values == {
        "DCGM_FI_DEV_GPU_UTIL": 87.5,
        "DCGM_FI_DEV_FB_USED": 3 * 1024,
        "DCGM_FI_DEV_FB_FREE": 77 * 1024,
        "DCGM_FI_DEV_POWER_USAGE": 70.0,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1_234_500.0,
        "DCGM_FI_DEV_GPU_TEMP": 40.0,
        "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    }


def test_a_gpu_says_where_it_is_in_both_spellings_and_whose_work_it_does() -> None:
    busy = worker(current_task="train")
    taken = snapshot(host("h", BUSY), workers=(busy,))
    ((labels, _),) = samples(exposition(taken, {BUSY.uuid: "run-1"}))["DCGM_FI_DEV_GPU_UTIL"]
    assert labels["Hostname"] == labels["hostname"] == "h"
    assert (labels["gpu"], labels["UUID"], labels["modelName"]) == ("0", BUSY.uuid, "A100")
    assert (labels["cluster"], labels["run"], labels["task"]) == ("lab", "run-1", "train")


def test_a_reading_that_is_missing_or_old_has_no_sample() -> None:
    nothing = DeviceReading("GPU-0", "0", "A100", utilization_percent=1.0)
    old = replace(BUSY, stale=True), replace(BUSY, lost=True)
    found = samples(exposition(snapshot(host("h", nothing, *old)), {}))
    assert [name for name in found if name.startswith("DCGM")] == ["DCGM_FI_DEV_GPU_UTIL"]
    assert len(found["DCGM_FI_DEV_GPU_UTIL"]) == 1


def test_no_name_breaks_a_line_or_a_label() -> None:
    poison = 'a"} 1\nb \\ c\x1b[2J'
    named = replace(BUSY, name=poison)
    text = exposition(snapshot(host(poison, named)), {BUSY.uuid: poison})
    ((labels, value),) = samples(text)["DCGM_FI_DEV_GPU_UTIL"]
    assert value == 87.5 and labels["run"].startswith('a"} 1')
    assert all(line.isprintable() for line in text.splitlines())


async def got(
    url: str, request: str = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9401\r\n\r\n"
) -> str:
    port = int(url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_head_serves_them_with_the_run_of_each_gpu(
    clusters: Clusters, nvml: FakeNvml
) -> None:
    nvml.set(gpus=[{"utilization": 42}, {}])
    cluster = await clusters.start("localhost", watch=True, workers=0, metrics_port=0)
    url = cluster.link.attached.metrics
    assert url.startswith("http://127.0.0.1:")
    await ran(cluster, *python("import time; time.sleep(60)"), run="mine", gpus=1)
    found: list[Sample] = []

    async def labelled() -> bool:
        head, _, body = (await got(url)).partition("\r\n\r\n")
        assert "200 OK" in head and "version=0.0.4" in head
        found[:] = samples(body).get("DCGM_FI_DEV_GPU_UTIL", [])
        return any(labels.get("run") for labels, _ in found)

    async with asyncio.timeout(20):
        while not await labelled():
            await asyncio.sleep(0.1)
    assert [(labels["gpu"], labels["run"]) for labels, _ in found if "run" in labels] == [
        ("1", "mine")
    ]
    assert found[0][1] == 42.0
    done = await cluster.request(ReadMetrics(0))
    assert isinstance(done, Done) and "DCGM_FI_DEV_GPU_UTIL{" in done.text


async def test_what_asks_for_something_else_or_says_nothing_is_left_alone() -> None:
    server = MetricsServer(lambda: "text\n")
    await server.open(0)
    try:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        for odd in (
            "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "POST /metrics HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ):
            assert "404" in await got(server.url, odd)
        assert (await got(server.url)).endswith("text\n")
        with pytest.raises(HeadError, match="name another one"):
            await MetricsServer(str).open(port)
        silent.close()
    finally:
        server.close()
