"""Dask's configuration reaches scheduler and workers over gputui's, however it is set."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml

from gputui.dask_settings import SETTINGS, devices_preferred, given_json

PROGRAM = """
import json, os, sys
import dask
keys, in_program = json.load(sys.stdin)
if in_program:
    dask.config.set(in_program)
from distributed import Client
from gputui import GPUCluster

def settings(keys):
    return {key: dask.config.get(key) for key in keys}

def of_scheduler(keys, dask_scheduler):
    said = settings(keys)
    said["saturation"] = dask_scheduler.WORKER_SATURATION
    said["ttl"] = dask_scheduler.worker_ttl
    said["failures"] = dask_scheduler.allowed_failures
    return said

def of_worker(keys, dask_worker):
    manager = dask_worker.memory_manager
    return {
        **settings(keys),
        "target": manager.memory_target_fraction,
        "pause": manager.memory_pause_fraction,
        "profile": "profile" in dask_worker.periodic_callbacks,
        "folder": dask_worker.local_directory,
        "variable": os.environ.get("GIVEN"),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "resources": dask_worker.state.total_resources,
    }

with GPUCluster("localhost gpus=none workers=1 nthreads=1") as cluster, Client(cluster) as client:
    scheduler = client.run_on_scheduler(of_scheduler, keys)
    (worker,) = client.run(of_worker, keys).values()
    print(json.dumps([scheduler, worker]))
"""

DASKS_OWN = {
    "distributed.scheduler.worker-saturation": 1.1,
    "distributed.scheduler.worker-ttl": "5 minutes",
    "distributed.worker.profile.interval": "10ms",
    "distributed.diagnostics.nvml": True,
    "distributed.worker.http.routes": ["distributed.http.worker.prometheus"],
    "distributed.admin.system-monitor.interval": "500ms",
    "distributed.admin.tick.interval": "20ms",
    "distributed.admin.tick.cycle": "1s",
}
"""What gputui sets, set back to what Dask has or nearly so."""

OTHERS = {
    "distributed.scheduler.allowed-failures": 7,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": 0.3,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.resources": {"foo": 2},
    "distributed.nanny.environ": {"GIVEN": "yes"},
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 3},
    "distributed.comm.timeouts.connect": "7s",
    "array.chunk-size": "3MiB",
}


def started(folder: Path, in_program: dict[str, Any], **environ: str) -> list[dict[str, Any]]:
    keys = [*DASKS_OWN, *OTHERS, "temporary-directory"]
    folders = {"XDG_RUNTIME_DIR": str(folder), "DASK_CONFIG": str(folder / "dask")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([keys, in_program]),
        env={**os.environ, **folders, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *parents, last = name.split(".")
        where = tree
        for parent in parents:
            where = where.setdefault(parent, {})
        where[last] = value
    return tree


@pytest.mark.parametrize("way", ["dask.config.set", "yaml", "environment"])
def test_every_setting_holds_on_scheduler_and_workers(tmp_path: Path, way: str) -> None:
    given = DASKS_OWN | OTHERS | {"temporary-directory": str(tmp_path / "scratch")}
    in_program: dict[str, Any] = {}
    environ: dict[str, str] = {}
    if way == "dask.config.set":
        # True is Dask's own object: it cannot be told from what nobody set, and 1 can.
        in_program = given | {"distributed.diagnostics.nvml": 1}
    elif way == "yaml":
        (tmp_path / "dask").mkdir()
        (tmp_path / "dask" / "mine.yaml").write_text(yaml.safe_dump(nested(given)))
    else:
        for key, value in given.items():
            name = "DASK_" + key.upper().replace(".", "__").replace("-", "_")
            environ[name] = value if isinstance(value, str) else repr(value)
    scheduler, worker = started(tmp_path, in_program, **environ)
    for side in (scheduler, worker):
        for key, value in given.items():
            found = {k: side[key][k] for k in value} if isinstance(value, dict) else side[key]
            assert found == value, key
    effects = [scheduler["saturation"], scheduler["ttl"], scheduler["failures"]]
    assert effects == [1.1, 300, 7]
    assert (worker["target"], worker["pause"], worker["profile"]) == (0.3, False, False)
    assert (worker["variable"], worker["threads"]) == ("yes", "3")
    assert worker["resources"] == {"foo": 2}
    assert Path(worker["folder"]).is_relative_to(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_gputuis_own_settings_hold_where_nobody_set_others(tmp_path: Path) -> None:
    scheduler, worker = started(tmp_path, {})
    for side in (scheduler, worker):
        assert {key: side[key] for key in SETTINGS} == SETTINGS
    assert worker["profile"] is True


@pytest.mark.parametrize("own", [None, "p2p"])
def test_collections_of_device_arrays_are_recut_by_tasks_while_a_cluster_is_open(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.dask_settings.find_spec", lambda name: name == "cupy")
    with dask.config.set({"array.rechunk.method": own}):
        with devices_preferred():
            assert dask.config.get("array.rechunk.method") == (own or "tasks")
        assert dask.config.get("array.rechunk.method") == own


def test_a_preload_for_nannies_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with dask.config.set({"distributed.nanny.preload": ["a_module"]}):
        given_json()
    assert "distributed.nanny.preload is not used" in caplog.text
    assert "distributed.worker.preload" in caplog.text
