"""A disk that is full, or without power, at every write: files are whole or absent, and said so."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh
import numpy as np
import pytest

from gputui import runs
from gputui.cli import why
from gputui.errors import FolderError, HeadError, RunError
from gputui.fleet.deploy import remote
from gputui.fleet.ssh.host_keys import entries, remember
from gputui.head.__main__ import LogFile
from gputui.presets import Figure
from gputui.protocol.connection_file import ConnectionFile, NameLock, find_cluster
from gputui.runs import output, records
from gputui.runs.output import draw_file, write_over
from gputui.tui import preferences
from tests.disk import Disk, PowerLostError, files_of_at_most

KEYS = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(2)]


@dataclass(frozen=True)
class Kept:
    """A kind of file: how its n-th content is written, and which is read."""

    write: Callable[[int], None]
    read: Callable[[], int | None]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        folder = tmp_path / variable
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    with tempfile.TemporaryDirectory(prefix="gt-", dir="/tmp") as short:  # for sockets
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield Disk(monkeypatch, tmp_path, Path(short))


def run_records(_: Path) -> Kept:
    record = runs.new_record("svd", {}, backend="auto", hosts="", version="0")

    def read() -> int | None:
        found = records.recorded()
        return found[0].restarts if found else None

    return Kept(lambda number: records.write(replace(record, restarts=number)), read)


def choices(folder: Path) -> Kept:
    path = folder / "state" / "screen.json"

    def read() -> int | None:
        theme = preferences.load(path).theme
        return int(theme) if theme else None

    return Kept(
        lambda number: preferences.save(path, preferences.Preferences(theme=str(number))), read
    )


def known_hosts(folder: Path) -> Kept:
    path = folder / "known_hosts"

    def write(number: int) -> None:
        line = KEYS[number].export_public_key().decode().strip()
        remember(str(path), ["gpu-a"], line, hash_names=False)

    def read() -> int | None:
        known = {entry.blob for entry in entries(path.read_text())} if path.exists() else set()
        assert known <= {key.public_data for key in KEYS}, "a key cut short is another key"
        return max((at for at, key in enumerate(KEYS) if key.public_data in known), default=None)

    return Kept(write, read)


WHOLE = (run_records, choices)
"""Kinds that are written as a whole; a line is added to known_hosts."""


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def every_call(
    disk: Disk, kind: Callable[[Path], Kept], folder: Path
) -> Iterator[tuple[Kept, int]]:
    """Yield a file that was written once, for each call that its second writing takes."""
    calls = 2
    at = -1
    while at < calls:
        disk.fail_at(None)
        (own := folder / str(at)).mkdir()
        kept = kind(own)
        kept.write(0)
        disk.fail_at(None)
        if at < 0:
            kept.write(1)
            calls = len(disk.calls)
        else:
            yield kept, at
        at += 1
    assert calls


@pytest.mark.parametrize("kind", [*WHOLE, known_hosts])
@pytest.mark.parametrize("stays_full", [False, True])
def test_a_disk_that_fills_up_at_any_call_leaves_what_was_there_as_it_was(
    kind: Callable[[Path], Kept], stays_full: bool, disk: Disk, tmp_path: Path
) -> None:
    for kept, at in every_call(disk, kind, tmp_path):
        before = files(tmp_path)
        disk.fail_at(at, stays_full=stays_full)
        try:
            kept.write(1)
        except OSError:
            assert kept.read() in (0, 1)
            assert files(tmp_path) <= before, "a draft is left"
        else:
            assert kept.read() == 1
        disk.fail_at(None)
        kept.write(1)
        assert kept.read() == 1


@pytest.mark.parametrize("kind", WHOLE)
def test_after_a_loss_of_power_at_any_call_a_file_is_whole(
    kind: Callable[[Path], Kept], disk: Disk, tmp_path: Path
) -> None:
    for kept, at in every_call(disk, kind, tmp_path):
        disk.fail_at(at, power=True)
        with contextlib.suppress(PowerLostError):
            kept.write(1)
        disk.lose_unsynced()
        assert kept.read() in (0, 1)


@pytest.mark.parametrize("kind", WHOLE)
def test_after_a_loss_of_power_at_the_first_writing_a_file_is_whole_or_absent(
    kind: Callable[[Path], Kept], disk: Disk, tmp_path: Path
) -> None:
    for at in range(10):
        disk.fail_at(None)
        (tmp_path / str(at)).mkdir()
        kept = kind(tmp_path / str(at))
        disk.fail_at(at, power=True)
        with contextlib.suppress(PowerLostError):
            kept.write(0)
        disk.lose_unsynced()
        assert kept.read() in (None, 0)


def test_a_pack_goes_where_there_is_room_and_leaves_no_draft(disk: Disk) -> None:
    home, temporary = remote.cache_folders()
    for at in range(8):
        disk.fail_at(at)
        made = remote._write(f"pack-{at}.pyz", b"x" * 1000)
        assert made.path.read_bytes() == b"x" * 1000
    assert {path.suffix for path in files(home) | files(temporary)} == {".pyz"}
    disk.fail_at(0, stays_full=True)
    with pytest.raises(FolderError, match=f"{home}: No space left on device"):
        remote._write("pack-full.pyz", b"x")


def test_a_cluster_is_found_though_the_disk_filled_up_after_it_took_its_name(disk: Disk) -> None:
    lock = NameLock("lab", "id")
    started = ConnectionFile("lab", "id", os.getpid(), 1.5, "/x.sock", "0")
    lock.publish(started)
    disk.fail_at(0, stays_full=True)
    with pytest.raises(HeadError, match="No space left on device"):
        lock.publish(replace(started, address="tls://host:1"))
    found = find_cluster("lab")
    assert found and found.socket == "/x.sock"
    lock.release()


def test_a_name_is_free_again_where_its_file_could_not_be_written(disk: Disk) -> None:
    for at in range(2, 8):
        disk.fail_at(at, stays_full=True)
        with contextlib.suppress(HeadError):
            NameLock("lab", "id").release()
    disk.fail_at(None)
    free = NameLock("lab", "id")
    with pytest.raises(HeadError):
        NameLock("lab", "another")
    free.release()


def test_a_head_goes_on_logging_when_a_full_disk_has_room_again(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = LogFile(tmp_path / "lab.log", file_bytes=1_000)
    lines = iter(range(1_000))

    def write() -> None:
        log.handle(logging.makeLogRecord({"msg": f"line {next(lines)} {'x' * 99}"}))

    for at in range(12):
        disk.fail_at(at, stays_full=True)
        for _ in range(12):
            write()
        disk.fail_at(None)
        write()
        assert "line" in (tmp_path / "lab.log").read_text()
    log.close()
    kept = "".join(path.read_text() for path in tmp_path.glob("lab.log*"))
    assert kept.count("line") > 10


def save_array(path: Path) -> None:
    output.save_arrays(path, {"u": np.ones((100, 100))}, lambda block: block)


def draw(path: Path) -> None:
    draw_file(Figure("line", "title", x=tuple(range(50)), y=tuple(range(50))), path)


@pytest.mark.parametrize(
    ("name", "make", "sizes"),
    [
        ("saved", save_array, (0, 1, 127, 128, 4096, 79_000)),
        ("report.html", lambda path: write_over("--report", path, b"x" * 10_000), (0, 1, 4096)),
        ("why.tar.gz", lambda path: why.pack(path, {}, ()), (0, 1, 500)),
        *((f"figure.{form}", draw, (0, 1, 5_000)) for form in ("png", "pdf", "svg")),
    ],
)
def test_an_output_that_does_not_fit_is_not_there(
    tmp_path: Path, name: str, make: Callable[[Path], None], sizes: tuple[int, ...]
) -> None:
    for size_bytes in sizes:
        with files_of_at_most(size_bytes), pytest.raises(RunError, match="File too large"):
            make(tmp_path / name)
        assert not (tmp_path / name).exists()
