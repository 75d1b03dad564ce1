"""GPU workers and CPU workers of one host, as a user runs them; the GPU is made up."""

import json
import os
from pathlib import Path

import pytest

from tests import fakes
from tests.system.conftest import Command

LOOK = """
import json
import os

import dask
from dask.distributed import Client, get_worker

from gputui import GPUCluster
from gputui.presets.workers import choose, known_workers


def cpus():
    return sorted(os.sched_getaffinity(0))


def name():
    return get_worker().name


if __name__ == "__main__":
    with GPUCluster("localhost gpus=all workers=1 memory=1GiB") as cluster:
        with Client(cluster) as client:
            known = known_workers(client)
            names = {each["name"]: address for address, each in known.items()}
            pins = {
                each: client.submit(cpus, workers=[at], pure=False).result()
                for each, at in names.items()
            }
            on_gpu = {client.submit(name, resources={"GPU": 1}).result()}
            with dask.annotate(resources={"GPU": 1}):
                tasks = [dask.delayed(name, pure=False)() for _ in range(8)]
            on_gpu |= set(client.gather(client.compute(tasks, optimize_graph=False)))
            chosen = [each["name"] for each in choose(known, "auto", None)[1].values()]
            print(json.dumps([pins, sorted(on_gpu), chosen]))
"""


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_workers_of_both_kinds_are_pinned_apart_and_work_finds_the_gpu(gputui: Command) -> None:
    gputui.env["PYTHONPATH"] = str(Path(fakes.__file__).parent)
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 1})
    script = gputui.folder / "look.py"
    script.write_text(LOOK)
    done = gputui.run_other("python", str(script))
    assert done.returncode == 0, done.stderr
    pins, on_gpu, chosen = json.loads(done.stdout)
    assert set(pins) == {"localhost:gpu0", "localhost:cpu0"}
    gpu, cpu = (set(pins[f"localhost:{label}"]) for label in ("gpu0", "cpu0"))
    assert gpu and cpu and gpu.isdisjoint(cpu)
    assert on_gpu == chosen == ["localhost:gpu0"]
