"""What users and other versions rely on: nothing of it goes without a line here that says why.

A name that is new needs no row. One that is lost fails until it is moved to `GONE`, with a reason.
"""

import asyncio
from importlib import import_module
from pathlib import Path

import click
import pytest

import gputui
from gputui import errors, presets
from gputui.cli import clusters
from gputui.cli.commands import gputui as program
from gputui.cli.listing import preset_object
from gputui.errors import ExitCode
from gputui.model.hosts import OPTIONS, Host, parse_hosts
from gputui.protocol.connection_file import ConnectionFile
from gputui.runs import new_record
from gputui.runs.records import as_object
from gputui.settings import KEYS, WORKER_KEYS, parse_settings
from tests.test_documentation import commands

GONE: dict[str, str] = {}
"""A name in the tables below → why it went."""

COMMANDS = {
    "open": (
        "--run -p --param --name --workers --busy --dashboard --min-workers --backend --attach "
        "--json --quiet --save --report --figure --demo --seed --readonly --theme --ascii "
        "--spec --gpus --gpus-per-host --memory-free --wait "
        "--metrics --notify --trace"
    ),
    "up": "--name --workers --busy --dashboard --idle-timeout --on --gpus --gpus-per-host "
    "--memory-free --wait --for --metrics --notify",
    "attach": "--readonly --theme --ascii",
    "watch": "--name --readonly --theme --ascii",
    "ls": "--json",
    "down": "--all",
    "metrics": "",
    "presets": "--json",
    "runs show": "--json --trace",
    "runs diff": "--json",
    "runs": "--json",
    "why": "--json --bundle",
    "doctor": "",
    "who": "--by --only --json --watch",
    "claim": "-n --gpus --for --note --wait --memory-free --pid --list --release",
    "bootstrap": "--yes --lock --wheels --index --host-pip-conf --build",
    "help": "",
    "completion": "",
}
"""Every command, and its options."""

HOST_OPTIONS = {
    "gpus": ("0,2-3", "gpus", ("0", "2", "3")),
    "workers-per-gpu": ("2", "workers_per_gpu", 2),
    "workers": ("4", "workers", 4),
    "nthreads": ("8", "nthreads", 8),
    "memory": ("64GiB", "memory_bytes", 2**36),
    "python": ("/opt/python", "python", "/opt/python"),
    "setup": ("module", "setup", "module"),
    "listen": ("[fd00::7]", "listen", "fd00::7"),
    "interface": ("ib0", "listen", "ib0"),
    "worker-ports": ("40000-40100", "ports", (40000, 40100)),
    "tunnel": ("true", "tunnel", True),
    "contact": ("192.0.2.7", "contact", "192.0.2.7"),
    "slurm": ("4711", "slurm_job", 4711),
    "env.NCCL_DEBUG": ("INFO", "env", (("NCCL_DEBUG", "INFO"),)),
}
"""Each → a value, the field of a host that it sets, and to what."""

SETTINGS: dict[str, object] = {
    "lease": 30,
    "stage-timeout": 20,
    "idle-timeout": 60,
    "head-cpus": 2,
    "busy": "skip",
    "scheduler.host": "10.0.0.1",
    "scheduler.port": 8786,
    "ssh.config": "/etc/ssh/mine",
    "runs.kept": 10,
    "notify": "mail me",
    "transfers": "bytes",
    "device-memory-limit": "10GB",
    "rmm-pool-size": 0.5,
    "rmm-async": True,
}
"""Each with a value that is taken."""

EXIT_CODES = {
    "DONE": 0,
    "COMPUTATION_FAILED": 1,
    "WRONG_USAGE": 2,
    "NO_CLUSTER": 3,
    "INTERRUPTED": 130,
}
ERRORS = {
    **dict.fromkeys(("RunError", "ProtocolError", "DevicesError"), 1),
    **dict.fromkeys(("UsageError", "HostsError", "PresetError"), 2),
    **dict.fromkeys(("ClusterError", "HostError", "ClusterTimeoutError", "HeadError"), 3),
    **dict.fromkeys(("FolderError", "StoppedError", "OtherVersionError"), 3),
}
"""Each error, and the exit code of the command that it ends."""

MESSAGES = {
    "agent": (
        "Configure KnowFrontends Credentials Reach StartWorkers StopWorkers "
        "RestartWorkers FollowLogs Ping Shutdown Pong Facts WorkerReading "
        "Telemetry Reached WorkerStarted WorkerReady WorkerExited Trouble "
        "AgentEnding"
    ),
    "frontend": (
        "Attach AwaitWorkers Scale RetireWorkers AddWorkers Restart ChangeHosts "
        "RetryHosts StartRun CancelRun KeepWatching ReportRun Answer Stop Attached "
        "SchedulerReady SnapshotTaken HistoryTaken EventHappened Asked Previewed Settled "
        "Done Cancelled Stopping Stopped"
    ),
    "scheduler": (
        "ConfigureScheduler Retire Remove StopScheduler SchedulerStarted WorkerCounts "
        "Counts Retired"
    ),
    "starter": ("ConfigureHead Keep Opened"),
    "shared": ("LogLines Refused"),
}
"""Every message, by its module."""

JSON_FIELDS = {
    "ls": "name address pid hosts workers started version state",
    "presets": "name summary parameters arrays draws requires",
    "runs": (
        "id preset parameters backend hosts state started_at pid version machine ended_at workers "
        "timings restarts saved summary result usage error_type error"
    ),
}
"""Those of `--run` are in `test_run.py`."""

PYTHON = {
    "gputui": "GPUCluster connect send_modules",
    "gputui.presets": (
        "BUILT_IN Figure Job Library Machine Memory Outcome Parameter ParsedParameters Preset "
        "RunCancelledError RunProgress RunWorker Value array_module get located module_of names "
        "parse refuse_too_many to_host"
    ),
    "gputui.runs": "RunRecord RunResult execute find recorded runs_dir save_arrays",
}
"""What `from … import` finds."""


def lost(names: str, found: object) -> list[str]:
    """Return the names that are neither found nor known to have gone."""
    assert hasattr(found, "__contains__")
    return [name for name in names.split() if name not in found and name not in GONE]


FOUND = dict(commands(program))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_options_and_a_help_that_names_them(name: str) -> None:
    command = FOUND[name]
    options = [option for each in command.params for option in each.opts]
    assert lost(COMMANDS[name], options) == []
    shown = command.get_help(click.Context(command, info_name=name))
    assert lost(COMMANDS[name], shown) == []


@pytest.mark.parametrize("key", HOST_OPTIONS)
def test_every_host_file_option_is_read(key: str) -> None:
    value, field, means = HOST_OPTIONS[key]
    assert key in OPTIONS or key.startswith("env.")
    needed = " gpus=none" if key == "workers" else ""
    (host,) = parse_hosts(f"a {key}={value}{needed}")
    assert getattr(host, field) == means != getattr(Host("a"), field)


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_is_taken(key: str) -> None:
    assert key in {*KEYS, *WORKER_KEYS}
    parse_settings({key: SETTINGS[key]})


def test_every_exit_code_is_as_it_was() -> None:
    assert {code.name: int(code) for code in ExitCode} == EXIT_CODES


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_ends_the_command_with_its_exit_code(name: str) -> None:
    assert getattr(errors, name).exit_code == ERRORS[name]


@pytest.mark.parametrize("module", MESSAGES)
def test_every_message_is_there(module: str) -> None:
    found = vars(import_module(f"gputui.protocol.{module}"))
    assert lost(MESSAGES[module], found) == []


@pytest.mark.parametrize("module", PYTHON)
def test_every_name_for_python_is_there(module: str) -> None:
    found = [name for name in PYTHON[module].split() if hasattr(import_module(module), name)]
    assert lost(PYTHON[module], found) == []


def test_every_json_field_is_there(tmp_path: Path) -> None:
    cluster = ConnectionFile("lab", "id", 1, 1.5, str(tmp_path / "no.sock"), gputui.__version__)
    row = asyncio.run(clusters._describe(cluster))
    assert row is not None and lost(JSON_FIELDS["ls"], row) == []
    assert lost(JSON_FIELDS["presets"], preset_object(presets.get("svd"))) == []
    assert (
        lost(
            JSON_FIELDS["runs"], as_object(new_record("svd", {}, backend="", hosts="", version=""))
        )
        == []
    )
