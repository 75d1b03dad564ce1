"""Good inputs of each target, for a fuzzer to begin with."""

import contextlib
import json
import subprocess
import tempfile
import typing
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from gputui.model.snapshot import RunState, Snapshot
from gputui.protocol.typed_codec import encode
from gputui.runs import new_record
from tests.fuzzing.shapes import value_of
from tests.fuzzing.targets import RUN, UNIONS

HOSTS = (
    "* python=/opt/env/bin/python\nlocalhost\nalice@gpu-b:2222 gpus=0,2-3 # two\n",
    "gpu[01-16] workers-per-gpu=2 memory=64GiB env.X=1;cpu-a gpus=none workers=4 nthreads=8",
    "[::1]:22\n[fd00::1]\na,b gpus=MIG-1,GPU-2\n",
)

RESULT = {
    "result": {"sum": 2.5, "rows": [{"name": "a", "ok": True}], "s": [3, 2, 1, 0.5]},
    "units": {"sum": "B/s"},
    "versions": {"dask": "1"},
    "figure": {"kind": "line", "title": "s", "x": [1, 2, 3], "y": [3, 2, 1]},
    "backend": "numpy",
    "failed_hosts": [{"host": "a", "stage": "login", "reason": "no"}],
}


@contextlib.contextmanager
def seeds(target: str) -> Iterator[Path]:
    """Yield a folder with a file for each good input."""
    with tempfile.TemporaryDirectory(prefix="seeds-") as folder:
        for number, data in enumerate(inputs(target)):
            Path(folder, str(number)).write_bytes(data)
        yield Path(folder)


def inputs(target: str) -> list[bytes]:
    """Return good inputs of a target."""
    if target == "hosts":
        return [text.encode() for text in HOSTS]
    if target == "ssh":
        return [subprocess.run(["ssh", "-G", name], capture_output=True).stdout for name in "ab"]
    if target == "records":
        record = new_record("svd", {"rows": 1}, backend="auto", hosts="", version="1", id=RUN)
        done = replace(
            record, state=RunState.DONE, ended_at=2.0, result=RESULT, timings={"computing": 1.5}
        )
        return [json.dumps(asdict(each)).encode() for each in (record, done)]
    kinds = (
        [Snapshot]
        if target == "snapshots"
        else [kind for union in UNIONS.values() for kind in typing.get_args(union)]
    )
    return [line for kind in kinds for line in examples(kind)]


def examples(kind: type, count: int = 3) -> list[bytes]:
    """Return a few lines of one kind of message."""
    lines: list[bytes] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(value_of(kind))
    def collect(message: object) -> None:
        lines.append(encode(message))

    collect()
    return lines
