"""`gputui why` as a command: a head that does not answer, and a bundle without secrets."""

import json
import os
import signal
import tarfile
import time
from pathlib import Path

import pytest

from gputui.cli import run_command
from gputui.cli.why import pack
from gputui.model.snapshot import (
    ClusterState,
    Event,
    RunState,
    RunStatus,
    SchedulerState,
    SchedulerStatus,
    Severity,
    Snapshot,
)
from gputui.protocol.frontend import EventHappened, SnapshotTaken
from gputui.protocol.shared import LogLines
from tests.system.conftest import Command, gputui  # noqa: F401

PLANTED = {
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----": "MIIEvQIBADANBgkq",
    "Authorization: Bearer abc.def-123456": "abc.def-123456",
    "https://ann:s3cr3t-word@hub/x": "s3cr3t-word",
    "api_key = 'k-1234567'": "k-1234567",
    "{'password': 'open sesame'}": "open sesame",
    "token hf_AbCdEfGhIjKlMnOp": "hf_AbCdEfGhIjKlMnOp",
    "export WANDB_KEY=0123abcd": "0123abcd",
    "environ({'SHELL_THING': 'a private value'})": "a private value",
    'File "/home/ann/secret-project/train.py"': "ann",
    "/root/.ssh/config": "/root",
    "from my environment: planted-by-variable": "planted-by-variable",
}
"""A line → what may not be left of it."""


def test_a_bundle_has_everything_that_explains_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "planted-by-variable")
    text = "\n".join(f"a {line} b" for line in PLANTED)
    run = RunStatus("one", "svd", (("key", "planted-parameter"),), RunState.RUNNING, 0.0)
    scheduler = SchedulerStatus(SchedulerState.RUNNING)
    state = ClusterState.RUNNING
    snapshot = Snapshot(1, time.time(), "lab", state, 0.0, scheduler, runs=(run,), reason=text)
    event = Event(1, 0.0, Severity.INFO, "cluster", "started", text)
    lines = LogLines("h:cpu0", tuple(text.split("\n")), 0.0)
    path = tmp_path / "bundle.tar.gz"
    pack(path, {"verdicts": [text]}, [SnapshotTaken(snapshot), EventHappened(event), lines])
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as bundle:
        found = {each.name: bundle.extractfile(each) for each in bundle}
        texts = {name: file.read().decode() for name, file in found.items() if file}
    assert sorted(texts) == [
        "gputui-why/events.txt",
        "gputui-why/logs/h-cpu0.txt",
        "gputui-why/snapshot.json",
        "gputui-why/versions.txt",
        "gputui-why/why.json",
    ]
    assert "train.py" in texts["gputui-why/logs/h-cpu0.txt"]
    for secret in [*PLANTED.values(), "planted-parameter"]:
        for name in texts.keys() - {"gputui-why/versions.txt"}:
            assert secret not in texts[name], (secret, name)


def test_a_bundle_where_no_folder_is_is_refused_before_a_head_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "none" / "b.tar.gz"
    assert run_command(["why", "--bundle", str(given)]) == 2
    assert f"--bundle {given}: no such folder" in capsys.readouterr().err


@pytest.mark.slow
def test_why_answers_within_seconds_while_head_or_workers_are_stopped(
    gputui: Command,  # noqa: F811
) -> None:
    assert gputui("up", "localhost gpus=none workers=1", "--name", "lab").returncode == 0
    assert "it waits for a client" in gputui("why").stdout
    assert "it waits for a client" in gputui("why", "lab", "--bundle", "b.tar.gz").stdout
    assert (gputui.folder / "b.tar.gz").exists()
    head = json.loads(gputui("ls", "--json").stdout)[0]["pid"]
    os.kill(head, signal.SIGSTOP)
    try:
        assert f"kill -CONT {head}" in gputui("why").stdout
    finally:
        os.kill(head, signal.SIGCONT)
    assert gputui("down").returncode == 0
