"""Dask's configuration reaches scheduler and workers over gputui's, however it is set."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401 - its keys are among those that Dask knows
import pytest
import yaml

import gputui
from gputui.client import running
from gputui.engine.dask_settings import (
    NOTEBOOK,
    SETTINGS,
    devices_preferred,
    files_and_folders,
    given_json,
)
from gputui.settings import KEYS, WORKER_KEYS, Settings
from tests.sshd import free_port

PROGRAM = """
import dataclasses, json, os, sys
import dask
keys, in_program = json.load(sys.stdin)
if in_program:
    dask.config.set(in_program)
from distributed import Client
from gputui import GPUCluster
from gputui.settings import load_settings

def settings(keys):
    return {key: dask.config.get(key, None) for key in keys}

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
    starter = dataclasses.asdict(load_settings())
    starter["address"] = cluster.scheduler_address
    starter["interval"] = cluster.adapt(minimum=1, maximum=1).interval
    print(json.dumps([scheduler, worker, starter]))
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
    "distributed.worker.transfer.message-bytes-limit": "80MB",
    "distributed.worker.lifetime.duration": "1 hour",
    "distributed.worker.lifetime.stagger": "1 minute",
    "distributed.worker.lifetime.restart": True,
    "distributed.worker.preload": ["json"],
    "distributed.worker.preload-argv": [[]],
    "distributed.nanny.environ": {"GIVEN": "yes"},
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 3},
    "distributed.comm.timeouts.connect": "7s",
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.client.preload": ["json"],
    "distributed.adaptive.interval": "3s",
    "array.chunk-size": "3MiB",
    "array.rechunk.method": "p2p",
    "dataframe.shuffle.method": "p2p",
}

GPUTUIS = {
    "gputui.lease": 12,
    "gputui.stage-timeout": 11,
    "gputui.idle-timeout": 3600,
    "gputui.head-cpus": 1,
    "gputui.busy": "skip",
    "gputui.scheduler.host": "127.0.0.1",
    "gputui.runs.kept": 9,
    "gputui.ssh.remote-gputui": "/opt/gputui",
    "gputui.notify": "/bin/true",
    "gputui.transfers": "bytes",
    "gputui.device-memory-limit": 0.5,
    "gputui.rmm-pool-size": "1 GiB",
    "gputui.rmm-async": True,
}

PATHS_AND_PORTS = ("temporary-directory", "gputui.ssh.config", "gputui.scheduler.port")

NOT_OBEYED = {
    "distributed.nanny.preload": "is warned about",
    "distributed.nanny.preload-argv": "is warned about",
    "distributed.admin.event-loop": "is warned about",
    "distributed.comm.tls.ca-file": "is warned about",
    "distributed.scheduler.dashboard.tls.cert": "is warned about",
    "scheduler": "a preset computes on its own cluster",
    "scheduler-address": "a preset or script computes on its own cluster",
    "distributed.client.security-loader": "and has that cluster's certificates",
}


def started(folder: Path, in_program: dict[str, Any], **environ: str) -> list[dict[str, Any]]:
    keys = [*DASKS_OWN, *OTHERS, *GPUTUIS, *PATHS_AND_PORTS]
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


@pytest.mark.slow
@pytest.mark.parametrize("way", ["dask.config.set", "yaml", "environment"])
def test_every_setting_holds_on_scheduler_and_workers(tmp_path: Path, way: str) -> None:
    (tmp_path / "ssh_config").touch()
    port = free_port()
    values = (str(tmp_path / "scratch"), str(tmp_path / "ssh_config"), port)
    given = DASKS_OWN | OTHERS | GPUTUIS | dict(zip(PATHS_AND_PORTS, values, strict=True))
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
    scheduler, worker, starter = started(tmp_path, in_program, **environ)
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
    own = {field: given[f"gputui.{key}"] for key, (field, _) in KEYS.items()}
    assert {field: starter[field] for field in own} == own
    assert not any(getattr(Settings(), field) == value for field, value in own.items())
    assert (starter["address"], starter["interval"]) == (f"tls://127.0.0.1:{port}", 3)


def test_every_key_that_is_set_or_read_is_one_of_those_tested() -> None:
    files = Path(gputui.__file__).parent.rglob("*.py")
    used = {key for path in files for key in keys_in(ast.parse(path.read_text()))}
    used |= {f"gputui.{key}" for key in (*KEYS, *WORKER_KEYS)}
    assert used >= {*DASKS_OWN, *NOT_OBEYED}
    tested = {*DASKS_OWN, *OTHERS, *GPUTUIS, *PATHS_AND_PORTS, *NOT_OBEYED}
    assert used - tested == {"gputui", "distributed"}  # each read as a whole


def keys_in(tree: ast.AST) -> Iterator[str]:
    """Yield the keys that Dask or gputui knows, and all that are given to `dask.config`."""
    known = {key for key in flat(dask.config.merge(*dask.config.defaults)) if {*".-"} & {*key}}
    known |= {f"gputui.{key}" for key in (*KEYS, *WORKER_KEYS)}
    dicts = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in known:
            yield str(node.value)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            given = node.args[0]
            given = dicts.get(given.id, given) if isinstance(given, ast.Name) else given
            for each in given.keys if isinstance(given, ast.Dict) else [given]:
                if isinstance(each, ast.Constant):
                    yield str(each.value)


CALLS = ("dask.config.get", "dask.config.set")


def flat(tree: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield before + key
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}.")


def test_gputuis_own_settings_hold_where_nobody_set_others(tmp_path: Path) -> None:
    scheduler, worker, _ = started(tmp_path, {})
    for side in (scheduler, worker):
        assert {key: side[key] for key in SETTINGS} == SETTINGS
    assert worker["profile"] is True


@pytest.mark.parametrize("own", [None, "p2p"])
def test_collections_of_device_arrays_are_recut_by_tasks_while_a_cluster_is_open(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.engine.dask_settings.find_spec", lambda name: name == "cupy")
    with dask.config.set({"array.rechunk.method": own}):
        with devices_preferred():
            assert dask.config.get("array.rechunk.method") == (own or "tasks")
        assert dask.config.get("array.rechunk.method") == own


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("distributed.nanny.preload", ["a_module"], r"use distributed\.worker\.preload\n"),
        ("distributed.nanny.preload-argv", [["a"]], r"use distributed\.worker\.preload-argv\n"),
        ("distributed.worker.http.routes", ["a.module"], "no worker serves HTTP"),
        ("distributed.admin.event-loop", "uvloop", "asyncio's own loop"),
        *(
            (f"distributed.comm.tls.{role}.{part}", "a.pem", "certificates of its own")
            for role in ("scheduler", "worker", "client")
            for part in ("cert", "key")
        ),
        ("distributed.comm.tls.ca-file", "a.pem", "certificates of its own"),
    ],
)
def test_a_setting_without_effect_is_warned_about(
    caplog: pytest.LogCaptureFixture, name: str, value: object, hint: str
) -> None:
    with dask.config.set({name: value}):
        given_json()
    assert re.search(f"{name} is not used: .*{hint}", caplog.text)
    caplog.clear()
    with dask.config.set({"distributed.admin.event-loop": "asyncio"}):
        given_json()
    assert caplog.text == ""


def test_a_variable_of_the_environment_is_a_setting_where_there_is_no_dask() -> None:
    code = (
        "from gputui.engine.dask_settings import given_json, worker_environment;"
        "print(worker_environment(given_json()))"
    )
    variables = {
        "DASK_DISTRIBUTED__ADMIN__EVENT_LOOP": "uvloop",
        "DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON": '{"A": "1"}',
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "(('A', '1'),)\n"
    assert "distributed.admin.event-loop is not used" in done.stderr


@pytest.mark.parametrize("given", ["one.module", ["one.module"]])
def test_a_preload_may_be_one_word(given: object) -> None:
    with dask.config.set({"distributed.client.preload": given}):
        settings = json.loads(given_json())["distributed"]["client"]
        assert settings["preload"] == ["one.module"]
        running._send_modules_of_notebooks()
        assert dask.config.get("distributed.client.preload") == ["one.module", NOTEBOOK]


START = """
import sys
from gputui.engine.dask_settings import given_json
from gputui.settings import load_settings
print(load_settings().lease_s, given_json(), "dask" in sys.modules)
"""


def test_dask_is_imported_for_its_configuration_only_where_there_is_any(tmp_path: Path) -> None:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("DASK_")}

    def started(**more: str) -> str:
        env = environ | {"HOME": str(tmp_path)} | more
        return subprocess.check_output([sys.executable, "-c", START], env=env, text=True).strip()

    assert started() == "10.0 {} False"
    assert started(DASK_GPUTUI__LEASE="7") == '7.0 {"gputui": {"lease": 7}} True'
    folder = tmp_path / ".config" / "dask"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("gputui: {lease: 8}")
    assert started() == '8.0 {"gputui": {"lease": 8}} True'


def test_dask_looks_for_its_configuration_where_gputui_does() -> None:
    given = os.environ.get("DASK_CONFIG")
    assert {*map(str, files_and_folders()), *filter(None, [given])} == {*dask.config.paths}
