"""Stacks from py-spy, as it answers where it is installed, refused, or of another kind."""

from pathlib import Path

import pytest

from gputui.agent.examining import by_py_spy

DUMP = """[{"thread_id": 9, "thread_name": null, "owns_gil": true, "frames": [
{"name": "Kind.f", "filename": "/home/ann/mine.py", "line": 3}]}]"""


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (f"cat <<'E'\n{DUMP}\nE", ["thread 9"]),
        (
            "echo 'Error: Permission Denied: Try running again with elevated permissions'; exit 1",
            [],
        ),
        ("echo \"error: unexpected argument '--json' found\" >&2; exit 2", []),
        ("echo '[{\"other\": 1}]'", []),
        ("sleep 60", []),
        (None, []),
    ],
)
async def test_py_spy_gives_stacks_or_nothing(
    script: str | None, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    found = await by_py_spy(1)
    assert [thread.name for thread in found] == names
    assert all(thread.has_gil and thread.frames == ("~/mine.py:3 f",) for thread in found)
