"""Programs through a head: on free GPUs or places of CPUs, all or none, and nothing held after."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from gputui.errors import HeadError
from gputui.model.readings import Wanted
from gputui.model.snapshot import ClusterState, HostState
from gputui.protocol.frontend import AwaitWorkers, Scale
from gputui.protocol.programs import (
    BytesTaken,
    EndRun,
    Launch,
    Per,
    Placed,
    ProgramExited,
    ProgramOutput,
    ProgramWaits,
    RunPrograms,
    unpacked,
)
from tests.agent.conftest import FakeNvml
from tests.clusters import Clusters, LiveCluster
from tests.processes import command_of, processes_of


async def ran(
    cluster: LiveCluster,
    *argv: str,
    run: str = "a",
    gpus: int = 1,
    per: Per = Per.HOST,
    wait_s: float = 0.0,
) -> Placed:
    order = RunPrograms(0, run, Launch(argv, "/"), Wanted(gpus, wait_s=wait_s), per)
    return await cluster.request(order)


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


class Output:
    """What the programs of a cluster print, taken as it comes."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.said: dict[str, str] = {}
        self.exited: dict[str, ProgramExited] = {}
        self.waits: list[str] = []
        self._cluster = cluster
        cluster.link.heard = self._heard

    def _heard(self, message: object) -> None:
        match message:
            case ProgramOutput(program, start, data):
                self.said[program] = self.said.get(program, "") + unpacked(data).decode()
                taken = BytesTaken(program, start + len(unpacked(data)))
                self._cluster.link.send(taken)
            case ProgramExited():
                self.exited[message.program] = message
            case ProgramWaits(why):
                self.waits.append(why)

    async def ended(self, *programs: str) -> None:
        await self._cluster.until(lambda: set(programs) <= {*self.exited})


@pytest.fixture
async def gpus(clusters: Clusters, nvml: FakeNvml) -> AsyncIterator[LiveCluster]:
    """A head that watches four GPUs."""
    nvml.set(gpus=4)
    yield await clusters.start("localhost", watch=True, workers=0)


async def test_a_head_that_watches_has_no_scheduler_until_the_first_worker(
    clusters: Clusters,
) -> None:
    cluster = await clusters.start("localhost gpus=none workers=1", watch=True, workers=0)
    await cluster.request(AwaitWorkers(0, 0))
    await cluster.until(lambda: cluster.snapshot and cluster.snapshot.hosts[0].state.final)
    assert cluster.snapshot.hosts[0].state is HostState.READY
    assert cluster.snapshot.state is ClusterState.WATCHING
    assert not cluster.snapshot.scheduler.pid
    await cluster.request(Scale(0, 1))
    await cluster.up(1)
    assert cluster.snapshot.state is ClusterState.RUNNING


async def test_a_host_without_workers_imports_nothing_of_theirs(clusters: Clusters) -> None:
    cluster = await clusters.start("localhost gpus=none workers=1", watch=True, workers=0)
    output = Output(cluster)
    await ran(cluster, "true")
    await output.ended("a/0")
    commands = [command_of(pid) for pid in processes_of(cluster.id)]
    assert commands and not any("forkserver" in words for words in commands)


async def test_one_process_a_gpu_finds_its_rank_and_its_gpu(gpus: LiveCluster) -> None:
    output = Output(gpus)
    code = (
        "import os; e = os.environ; print(e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE'],"
        " e['CUDA_VISIBLE_DEVICES'], e['CUDA_DEVICE_ORDER'], e['MASTER_ADDR'],"
        " int(e['MASTER_PORT']) > 0, e['GPUTUI_NODES'])"
    )
    placed = await ran(gpus, *python(code), gpus=2, per=Per.GPU)
    assert [place.gpus for place in placed.places] == [("0",), ("1",)]
    await output.ended("a/0", "a/1")
    assert output.said == {
        "a/0": "0 0 2 0 PCI_BUS_ID 127.0.0.1 True 1\n",
        "a/1": "1 1 2 1 PCI_BUS_ID 127.0.0.1 True 1\n",
    }


async def test_one_process_a_host_sees_its_gpus_and_torchruns_defaults(gpus: LiveCluster) -> None:
    output = Output(gpus)
    code = (
        "import os, sys; e = os.environ; print(e['CUDA_VISIBLE_DEVICES'], e['PET_NNODES'],"
        " e['PET_NPROC_PER_NODE'], e['PET_NODE_RANK'], sys.argv[1:])"
    )
    await ran(gpus, *python(code), "{node_rank}/{nodes}", "{x}", gpus=3)
    await output.ended("a/0")
    assert output.said["a/0"] == "0,1,2 1 3 0 ['0/1', '{x}']\n"


async def test_gpus_are_claimed_while_a_program_runs_and_free_afterwards(gpus: LiveCluster) -> None:
    output = Output(gpus)
    await ran(gpus, "sleep", "1000", gpus=3)
    await gpus.until(lambda: sum(d.claim is not None for d in devices(gpus)) == 3)
    with pytest.raises(HeadError, match="too few free GPUs: 2 asked for, 1 free"):
        await ran(gpus, "true", run="b", gpus=2)
    waiting = asyncio.ensure_future(ran(gpus, "true", run="c", gpus=2, wait_s=60))
    await gpus.until(lambda: any("too few free" in why for why in output.waits))
    gpus.link.send(EndRun("a", 1.0))
    await waiting
    await output.ended("a/0", "c/0")
    assert output.exited["a/0"].status == -15
    await gpus.until(lambda: not any(d.claim for d in devices(gpus)))


def devices(cluster: LiveCluster) -> list[object]:
    return [d for host in cluster.snapshot.hosts for d in host.devices] if cluster.snapshot else []


async def test_a_frontend_that_goes_away_ends_its_programs(
    gpus: LiveCluster, clusters: Clusters
) -> None:
    other = await clusters.attach(gpus.head, gpus.socket)
    await ran(other, "sleep", "1000", gpus=4)
    await gpus.until(lambda: all(d.claim for d in devices(gpus)) and devices(gpus))
    waiting = asyncio.ensure_future(ran(gpus, "true", run="b", gpus=4, wait_s=60))
    await other.link.close()
    await waiting


async def test_hosts_without_gpus_have_places(clusters: Clusters) -> None:
    cluster = await clusters.start("localhost gpus=none workers=3", watch=True, workers=0)
    output = Output(cluster)
    await ran(cluster, *python("import os; print(os.environ['RANK'])"), gpus=3, per=Per.GPU)
    await output.ended("a/0", "a/1", "a/2")
    assert sorted(output.said.values()) == ["0\n", "1\n", "2\n"]
    room = "too little room: 4 asked for, 3 on these hosts without a GPU\n  workers=N on "
    with pytest.raises(HeadError, match=room):
        await ran(cluster, "true", run="b", gpus=4)


async def test_a_hosts_memory_limit_is_each_processs_there(clusters: Clusters) -> None:
    line = "localhost gpus=none workers=2 memory=100MiB"
    cluster = await clusters.start(line, watch=True, workers=0)
    output = Output(cluster)
    code = "import os, time; held = os.environ['RANK'] == '1' and b'x' * 2**27; time.sleep(1000)"
    await ran(cluster, *python(code), gpus=2, per=Per.GPU)
    await output.ended("a/0", "a/1")
    assert output.exited["a/1"].reason.startswith("reached its memory limit of 100 MiB")
    assert output.exited["a/0"].status == -15
