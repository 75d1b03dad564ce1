"""A folder packed for programs: what git ignores left out, bounded, and whatever is in it."""

import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from gputui.errors import ClusterError
from gputui.fleet import folders
from gputui.fleet.folders import pack_folder


async def names(folder: Path) -> set[str]:
    with tempfile.TemporaryFile() as archive:
        await pack_folder(str(folder), archive)
        packed = os.pread(archive.fileno(), 2**20, 0)  # as it is sent
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            return {os.path.normpath(each.name) for each in tar}


async def test_what_git_ignores_or_has_lost_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("train.py", "new.py", "caf\udce9.py", "big.bin", "sub/a b.py", "gone.py"):
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "train.py", "gone.py"], check=True)
    (tmp_path / "gone.py").unlink()
    there = {"train.py", "new.py", "caf\udce9.py", "sub/a b.py", "link", ".gitignore"}
    assert await names(tmp_path) == there
    assert await names(tmp_path / "sub") == {"a b.py"}


async def test_what_repositories_in_a_folder_ignore_is_left_out_and_their_history(
    tmp_path: Path,
) -> None:
    for name in ("outer/new", "outer/module", "plain/deep/clone"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        for file, text in ((".gitignore", ".env\n"), (".env", "secret"), ("code.py", "x")):
            (folder / file).write_text(text)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    module = ["git", "-C", str(tmp_path / "outer" / "module"), *identity]
    subprocess.run([*module, "add", "."], check=True)
    subprocess.run([*module, "commit", "-qm", "a"], check=True)
    outer = ["git", "-C", str(tmp_path / "outer")]
    subprocess.run([*outer, "init", "-q"], check=True)
    subprocess.run([*outer, "add", "module"], check=True, stderr=subprocess.DEVNULL)
    both = {f"{name}/{file}" for name in ("new", "module") for file in (".gitignore", "code.py")}
    assert await names(tmp_path / "outer") == both | {"new", "module"}
    there = {"deep", "deep/clone", "deep/clone/.gitignore", "deep/clone/code.py"}
    assert await names(tmp_path / "plain") == there


async def test_a_submodule_that_was_not_cloned_is_an_empty_folder(tmp_path: Path) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    for name in ("sub", "top"):
        git = ["git", "-C", str(tmp_path / name), *identity]
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
        (tmp_path / name / "a.py").write_text("x")
        if name == "top":
            subprocess.run([*git, "submodule", "--quiet", "add", "../sub", "sub"], check=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "a"], check=True)
    subprocess.run(["git", "clone", "-q", tmp_path / "top", tmp_path / "clone"], check=True)
    assert await names(tmp_path / "clone") == {"a.py", ".gitmodules", "sub"}


async def test_a_folder_that_is_ignored_is_refused_not_sent_empty(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "b.py").write_text("x")
    (tmp_path / ".gitignore").write_text("build\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(
        ClusterError, match=r"--send .*build: it is empty, or git ignores all of it"
    ):
        await names(tmp_path / "build")


async def test_without_git_all_of_it_is_packed(tmp_path: Path) -> None:
    (tmp_path / "sub" / "empty").mkdir(parents=True)
    (tmp_path / "a.bin").write_text("x")
    assert await names(tmp_path) == {"sub", "sub/empty", "a.bin"}


async def test_without_a_git_that_may_be_run_all_of_it_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "git").touch(0o600)
    assert await names(tmp_path) == {"git"}


@pytest.mark.skipif(os.getuid() != 0, reason="users are played by root alone")
async def test_where_git_refuses_a_folder_of_another_user_nothing_is_packed(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    os.chown(folder, 65534, 65534)
    with pytest.raises(ClusterError, match=r"--send .*theirs: git: .*dubious ownership"):
        await names(folder)


async def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_BYTES", 2**20)
    (tmp_path / "a").write_bytes(os.urandom(2**21))
    with pytest.raises(ClusterError, match="more than 1 MiB when packed"):
        await pack_folder(str(tmp_path), io.BytesIO())
    with pytest.raises(ClusterError, match="--send /none: No such file or directory"):
        await pack_folder("/none", io.BytesIO())
