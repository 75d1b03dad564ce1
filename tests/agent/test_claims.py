"""Claims on GPUs, by three users of one host: what excludes, who holds, who comes first."""

import fcntl
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import gputui
from gputui.agent import claims
from gputui.agent.claims import Claims, claims_folder
from gputui.agent.held_claims import HeldClaims
from gputui.errors import FolderError
from gputui.model.readings import Claim, Note
from gputui.process import procfs
from gputui.protocol.agent import ClaimEnded, ClaimGpus, Configure, ReleaseGpus
from tests.system.conftest import wait_until

ALICE, BOB, CAROL = 61001, 61002, 61003
GPUS = tuple(f"GPU-{number}" for number in range(4))
ROOT = str(Path(gputui.__file__).parent.parent)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TEXT = Note("training", since=1.0, until=2.0)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="users are played by root alone")


@pytest.fixture(autouse=True)
def protected_regular() -> Iterator[None]:
    """Have the kernel refuse O_CREAT on others' files in sticky folders, as distributions do."""
    setting = Path("/proc/sys/fs/protected_regular")
    before = setting.read_text()
    setting.write_text("2")
    yield
    setting.write_text(before)


@pytest.fixture
def folder(open_folder: Path) -> Path:
    """A folder for claims that every user may reach."""
    return claims_folder("", open_folder / "none", [open_folder / "gputui"])


class User:
    """A process of another user that does what it is asked over a pipe."""

    def __init__(self, folder: Path, uid: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_obey, args=(folder, uid, theirs, self._pipe))
        self._process.start()
        theirs.close()
        self.pid = self._process.pid or 0
        self.uid = uid

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            self._pipe.send((name, arguments))
            assert self._pipe.poll(20), f"{name} does not return"
            return self._pipe.recv()

        return ask

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _obey(folder: Path, uid: int, pipe: Connection, other: Connection) -> None:
    other.close()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    mine = Claims(folder)
    while True:
        name, arguments = pipe.recv()
        if name == "set_clock":
            time.time = lambda now=arguments[0]: now
            pipe.send(None)
            continue
        value = getattr(mine, name)
        pipe.send(value(*arguments) if callable(value) else value)


Start = Callable[[int], User]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    users: list[User] = []

    def begin(uid: int) -> User:
        users.append(User(folder, uid))
        return users[-1]

    yield begin
    for user in users:
        user.end()


def seen(folder: Path) -> dict[str, Claim]:
    return Claims(folder).seen(GPUS)


def flock(folder: Path, uuid: str, uid: int) -> int:
    """Return what util-linux's flock says of a claim, as any shell of that user would ask."""
    line = f"exec 9<{folder}/{uuid}.lock && flock -n 9"
    return subprocess.run(["sh", "-c", line], user=uid, group=uid, extra_groups=[]).returncode


def test_the_kernel_is_not_asked_for_its_locks_where_nothing_is_held(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Claims(folder)
    mine.claim(GPUS, TEXT)
    mine.release()
    monkeypatch.setattr(procfs, "flock_holders", lambda: pytest.fail("it may take 20 ms"))
    assert (seen(folder), mine.tickets()) == ({}, ())


def test_a_claim_excludes_others_and_names_its_holder(folder: Path, start: Start) -> None:
    alice, bob = start(ALICE), start(BOB)
    assert alice.claim(GPUS[:2], TEXT) == ()
    assert bob.claim(GPUS[1:3], TEXT) == (GPUS[1],)
    expected = {uuid: Claim(alice.pid, str(ALICE), TEXT) for uuid in GPUS[:2]}
    assert seen(folder) == expected
    assert bob.claim(GPUS[2:], TEXT) == ()


def test_a_stopped_holder_keeps_its_claim(folder: Path, start: Start) -> None:
    alice, bob = start(ALICE), start(BOB)
    alice.claim(GPUS[:1], TEXT)
    alice.signal(signal.SIGSTOP)
    assert bob.claim(GPUS[:1], TEXT) == GPUS[:1]


def test_flock_of_util_linux_excludes_and_is_excluded(folder: Path, start: Start) -> None:
    alice = start(ALICE)
    alice.claim(GPUS[:1], TEXT)
    assert flock(folder, GPUS[0], BOB) == 1
    alice.release()
    line = f"exec 9<{folder}/{GPUS[0]}.lock && flock -n 9 && echo held && exec sleep 60"
    held = subprocess.Popen(["sh", "-c", line], user=BOB, group=BOB, stdout=subprocess.PIPE)
    try:
        assert held.stdout and held.stdout.readline() == b"held\n"
        assert alice.claim(GPUS[:1], TEXT) == GPUS[:1]
        # The lock is of the process `flock`, which has ended; the shell's descriptor keeps it.
        assert seen(folder) == {GPUS[0]: Claim(None, None)}
    finally:
        held.kill()
        held.communicate()


def test_the_line_of_the_help_holds_a_gpu_by_name(folder: Path, start: Start) -> None:
    text = resources.files("gputui.help").joinpath("sharing.md").read_text()
    (line,) = re.findall(r"`(flock -n .*GPU-.*\.lock)`", text)
    line = line.replace("/run/lock/gputui/GPU-3f0c", f"{folder}/{GPUS[0]}")
    line = line.replace("python train.py", "sh -c 'echo held; exec sleep 60'")
    alice = start(ALICE)
    alice.claim(GPUS[:1], TEXT)
    assert subprocess.run(["sh", "-c", line], user=BOB, group=BOB).returncode == 1
    alice.release()
    shell = subprocess.Popen(
        ["sh", "-c", f"exec {line}"], user=BOB, group=BOB, stdout=subprocess.PIPE
    )
    try:
        assert shell.stdout and shell.stdout.readline() == b"held\n"
        assert alice.claim(GPUS[:1], TEXT) == GPUS[:1]
        assert seen(folder) == {GPUS[0]: Claim(shell.pid, str(BOB))}
    finally:
        child = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text()
        os.kill(int(child), signal.SIGKILL)
        shell.communicate()


def locked(folder: Path) -> dict[str, int]:
    """Return who holds each GPU, as lslocks of util-linux says."""
    columns = ["lslocks", "--json", "-o", "PID,INODE"]
    said = subprocess.run(columns, capture_output=True, check=True).stdout
    table = json.loads(said)["locks"] if said else []  # of no lock at all it says nothing
    pids = {each["inode"]: each["pid"] for each in table}
    inodes = {uuid: (folder / f"{uuid}.lock") for uuid in GPUS}
    return {
        uuid: pids[path.stat().st_ino]
        for uuid, path in inodes.items()
        if path.exists() and path.stat().st_ino in pids
    }


def test_a_note_counts_only_of_the_user_who_holds_the_lock(folder: Path, start: Start) -> None:
    alice, bob = start(ALICE), start(BOB)
    bob.claim(GPUS[:1], Note("bob was here"))
    bob.end()
    forged = folder / f"{GPUS[0]}.{ALICE}.note"
    forged.write_text(json.dumps({"text": "forged"}))
    assert alice.claim(GPUS[:1], TEXT) == ()
    assert seen(folder)[GPUS[0]].note == Note()


def test_a_note_counts_only_of_the_process_that_wrote_it(folder: Path, start: Start) -> None:
    killed, after, other = start(ALICE), start(ALICE), start(ALICE)
    killed.claim(GPUS[:1], replace(TEXT, only_held=True))
    killed.end()
    assert after._locked(f"{GPUS[0]}.lock")  # as any program may
    assert seen(folder) == {GPUS[0]: Claim(after.pid, str(ALICE))}
    other.end_own(GPUS[:1])
    after.end_own(())  # it answers


def test_a_note_counts_of_a_holder_in_a_namespace_of_pids_below(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gputui.agent.claims import Claims, Note; "
        "Claims(Path(sys.argv[1])).claim(sys.argv[2:], Note('training')); input(print('held'))"
    )
    words = ["unshare", "--pid", "--fork", sys.executable, "-c", code, str(folder), GPUS[0]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": ROOT}, **pipes) as below:
        assert below.stdin and below.stdout
        assert below.stdout.readline() == "held\n"
        assert seen(folder)[GPUS[0]].note.text == "training"
        below.stdin.close()


@pytest.mark.parametrize(
    "text",
    [
        *("[1]", '{"pid": PID, "text": "\\u001b[2J", "until": "soon"}', "[" * 4000, "\0"),
        f'{{"pid": PID, "since": 1{"0" * 400}, "until": NaN, "idle_since": -1}}',
    ],
)
def test_a_note_may_say_anything(folder: Path, start: Start, text: str) -> None:
    alice = start(ALICE)
    alice.claim(GPUS[:1], TEXT)
    note = folder / f"{GPUS[0]}.{ALICE}.note"
    note.unlink()
    note.write_text(text.replace("PID", str(alice.pid)))
    os.chown(note, ALICE, ALICE)
    assert seen(folder)[GPUS[0]].note in (Note(), Note("␛[2J"))


def _closed(path: Path) -> None:
    path.touch(0o600)  # as a shell makes it under umask 077


@pytest.mark.parametrize(
    "make",
    [
        _closed,
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: os.mkfifo(path, 0o666),
        lambda path: path.mkdir(),
    ],
    ids=["closed", "a link", "a fifo", "a folder"],
)
def test_a_lock_that_nobody_can_take_keeps_one_gpu_and_no_other(
    folder: Path, start: Start, make: Callable[[Path], object]
) -> None:
    alice, lock = start(ALICE), folder / f"{GPUS[0]}.lock"
    make(lock)
    assert alice.claim(GPUS, TEXT) == GPUS[:1]
    assert alice.claim(GPUS[1:], TEXT) == ()
    claim = alice.seen(GPUS)[GPUS[0]]
    assert claim.user is None and not claim.own
    assert claim.note.text == f"nobody can lock {lock}: its owner, or root, removes it"


def test_an_agent_says_once_that_others_claim_the_gpus_of_its_workers(folder: Path) -> None:
    held = HeldClaims({"GPUTUI_CLAIMS": str(folder)}, Configure("c", "h", 60.0, 1.0, ()), {}, print)
    other = Claims(folder)
    assert other.claim(GPUS[1:2], TEXT) == ()
    said = f"{GPUS[1]} is in use here, and claimed by root"
    assert [held.follow(GPUS[:3]) for _ in range(2)] == [[said], []]
    assert held.claims and held.claims.held == {GPUS[0], GPUS[2]}
    other.release()
    assert held.follow(GPUS[:3]) == []
    assert held.claims.held == {*GPUS[:3]}


async def test_a_claim_for_a_process_that_fails_leaves_no_descriptor(folder: Path) -> None:
    (folder / f"{GPUS[0]}.lock").symlink_to("/etc/passwd")
    held = HeldClaims({"GPUTUI_CLAIMS": str(folder)}, Configure("c", "h", 60.0, 1.0, ()), {}, print)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert held.carry_out(ClaimGpus(1, GPUS[:1], TEXT, os.getpid())).held == GPUS[:1]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_an_agent_gives_no_gpu_twice_and_none_of_its_workers(folder: Path) -> None:
    held = HeldClaims({"GPUTUI_CLAIMS": str(folder)}, Configure("c", "h", 60.0, 1.0, ()), {}, print)
    held.follow(GPUS[:1])
    assert held.carry_out(ClaimGpus(1, GPUS[1:2], TEXT)).held == ()
    for uuid in GPUS[:2]:
        assert held.carry_out(ClaimGpus(1, (uuid, GPUS[2]), TEXT)).held == (uuid,)
    held.carry_out(ReleaseGpus(1, (GPUS[0], GPUS[2])))
    assert set(seen(folder)) == {*GPUS[:2]}


def test_a_claim_that_somebody_else_took_is_told_and_comes_back_with_its_note(
    folder: Path,
) -> None:
    told: list[ClaimEnded] = []
    environ, configure = {"GPUTUI_CLAIMS": str(folder)}, Configure("c", "h", 60.0, 1.0, ())
    held, other = HeldClaims(environ, configure, {}, told.append), Claims(folder)
    held.carry_out(ClaimGpus(1, GPUS[:1], TEXT))
    (folder / f"{GPUS[0]}.lock").unlink()
    assert other.claim(GPUS[:1], Note("another's")) == ()
    for _ in range(3):
        held.follow(())
    assert told == [ClaimEnded(f"{GPUS[0]} is claimed by root")]
    other.release()
    held.follow(())
    assert other.seen(GPUS[:1])[GPUS[0]].note.text == TEXT.text


def test_a_claim_whose_files_are_removed_keeps_its_note(folder: Path) -> None:
    environ, configure = {"GPUTUI_CLAIMS": str(folder)}, Configure("c", "h", 60.0, 1.0, ())
    held = HeldClaims(environ, configure, {}, print)
    held.carry_out(ClaimGpus(1, GPUS[:1], TEXT))
    for path in folder.iterdir():
        path.unlink()
    held.follow(())
    assert Claims(folder).seen(GPUS[:1])[GPUS[0]].note.text == TEXT.text
    (note,) = folder.glob("*.note")
    note.write_text('{"pid": 1')  # as of a full disk
    held.close()
    assert not list(folder.glob("*.note"))


def test_a_lost_claim_leaves_no_note(folder: Path, start: Start) -> None:
    alice, bob = start(ALICE), start(BOB)
    alice.claim(GPUS[:1], TEXT)
    (folder / f"{GPUS[0]}.lock").unlink()
    assert bob.claim(GPUS[:1], TEXT) == () and alice.keep() == GPUS[:1]
    assert [path.name for path in folder.glob("*.note")] == [f"{GPUS[0]}.{BOB}.note"]


def test_a_lock_file_that_is_removed_is_locked_again(folder: Path, start: Start) -> None:
    alice, bob = start(ALICE), start(BOB)
    alice.claim(GPUS[:2], TEXT)
    for uuid in GPUS[:2]:
        (folder / f"{uuid}.lock").unlink()
    assert bob.claim(GPUS[:1], TEXT) == ()
    assert alice.keep() == GPUS[:1]
    assert bob.claim(GPUS[1:2], TEXT) == GPUS[1:2]


def test_a_child_does_not_keep_the_claim_of_its_parent(folder: Path) -> None:
    mine = Claims(folder)
    mine.claim(GPUS[:1], TEXT)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        mine.release()
        assert seen(folder) == {}
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_a_holder_is_named_while_pages_of_other_locks_come_and_go(
    folder: Path, start: Start, tmp_path: Path
) -> None:
    alice = start(ALICE)
    alice.claim(GPUS[:1], TEXT)
    churning = [multiprocessing.Process(target=_churn, args=(tmp_path / str(n),)) for n in range(4)]
    for each in churning:
        each.start()
    try:
        wait_until(lambda: len(Path("/proc/locks").read_text()) > PAGE_BYTES)
        assert {seen(folder)[GPUS[0]].pid for _ in range(3_000)} == {alice.pid}
    finally:
        for each in churning:
            each.kill()
            each.join()


def _churn(folder: Path) -> None:
    """Lock and unlock files, many at a time."""
    folder.mkdir()
    while True:
        files = [(folder / str(number)).open("w") for number in range(60)]
        for file in files:
            fcntl.flock(file, fcntl.LOCK_EX)
        for file in files:
            file.close()


def test_who_waits_comes_in_order_and_the_dead_leave_the_line(folder: Path, start: Start) -> None:
    alice, bob, carol = start(ALICE), start(BOB), start(CAROL)
    for user in (alice, bob, carol):
        user.wait_in_line(GPUS, 1, TEXT)
    assert [each.holder.user for each in Claims(folder).tickets()] == [
        str(ALICE),
        str(BOB),
        str(CAROL),
    ]
    assert [each.holder.user for each in carol.ahead(GPUS)] == [str(ALICE), str(BOB)]
    alice.end()
    assert [each.holder.user for each in carol.ahead(GPUS)] == [str(BOB)]
    bob.signal(signal.SIGSTOP)
    wait_until(lambda: carol.ahead(GPUS) == (), 5)
    assert carol.claim(GPUS[:1], TEXT) == ()
    carol.leave_line()
    bob.signal(signal.SIGCONT)
    assert [each.holder.user for each in Claims(folder).tickets()] == [str(BOB)]


def test_a_ticket_may_say_any_number(folder: Path, start: Start) -> None:
    alice = start(ALICE)
    alice.wait_in_line(GPUS, 1, Note(since=10**400))  # type: ignore[arg-type]
    assert [each.holder.note for each in Claims(folder).tickets()] == [Note()]


def test_a_folder_in_the_place_of_a_ticket_or_a_note_takes_no_descriptor(
    folder: Path, start: Start
) -> None:
    assert start(ALICE).claim(GPUS[:1], TEXT) == ()
    (folder / "ticket-x").mkdir()
    note = folder / f"{GPUS[0]}.{ALICE}.note"
    note.unlink()
    note.mkdir()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert Claims(folder).seen(GPUS)[GPUS[0]].note == Note()
    assert Claims(folder).tickets() == ()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_ticket_for_other_gpus_is_not_ahead(start: Start) -> None:
    alice, bob = start(ALICE), start(BOB)
    alice.wait_in_line(GPUS[:2], 1, TEXT)
    assert bob.ahead(GPUS[2:]) == ()
    assert [each.holder.user for each in bob.ahead(GPUS)] == [str(ALICE)]


def test_tickets_of_killed_processes_are_removed_by_their_user(folder: Path, start: Start) -> None:
    for _ in range(3):
        alice = start(ALICE)
        alice.wait_in_line(GPUS, 1, TEXT)
        alice.end()
    alice = start(ALICE)
    alice.wait_in_line(GPUS, 1, TEXT)
    assert len(list(folder.glob("ticket-*"))) == 1


@pytest.mark.parametrize("rounds", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_rounds_hold_nothing_twice_and_nothing_for_the_dead(
    folder: Path, start: Start, rounds: int
) -> None:
    choose = random.Random(7)
    users = {uid: start(uid) for uid in (ALICE, BOB, CAROL)}
    held: dict[str, int] = {}
    line: list[int] = []
    for _ in range(rounds):
        uid = choose.choice((ALICE, BOB, CAROL))
        user = users[uid]
        match choose.choice(("claim", "claim", "release", "kill", "wait", "wait", "leave", "jump")):
            case "claim":
                some = choose.sample(GPUS, choose.randint(1, 3))
                others = {uuid for uuid in some if held.get(uuid, uid) != uid}
                assert set(user.claim(some, TEXT)) == others
                held |= dict.fromkeys([] if others else some, uid)
            case "release":
                some = choose.sample(GPUS, choose.randint(1, 3))
                user.release(some)
                held = {u: holder for u, holder in held.items() if holder != uid or u not in some}
            case "kill":
                user.end()
                users[uid] = start(uid)
                held = {u: holder for u, holder in held.items() if holder != uid}
                line = [each for each in line if each != uid]
            case "wait":
                user.wait_in_line(GPUS, 1, TEXT)
                line = [*(each for each in line if each != uid), uid]
                before = [each.holder.user for each in user.ahead(GPUS)]
                assert before == [str(each) for each in line[:-1]]
            case "leave":
                user.leave_line()
                line = [each for each in line if each != uid]
            case "jump":
                user.set_clock(choose.uniform(0.0, 4e9))
        assert [each.holder.user for each in Claims(folder).tickets()] == [str(u) for u in line]
        # lslocks may miss one that slips from a page of the kernel's list to the one before.
        pids = {uuid: users[uid].pid for uuid, uid in held.items()}
        wait_until(lambda pids=pids: locked(folder) == pids, 5)
        assert {uuid: claim.user for uuid, claim in seen(folder).items()} == {
            uuid: str(uid) for uuid, uid in held.items()
        }


def test_the_folder_is_an_administrators_where_one_is_set(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    mine.chmod(0o1777)
    setting = tmp_path / "claims"
    setting.write_text(f"{mine}\n")
    assert claims_folder("", setting) == mine
    setting.chmod(0o666)
    with pytest.raises(FolderError, match="is not root's alone"):
        claims_folder("", setting)


def test_a_folder_on_a_network_file_system_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(procfs, "file_system", lambda path: "nfs4")
    with pytest.raises(FolderError, match=f"on nfs4; write the path .* to {claims.SETTING}"):
        claims_folder("", tmp_path / "none", [tmp_path])


@pytest.mark.parametrize(("option", "hidden"), [("hidepid=2", True), ("hidepid=0", False)])
def test_it_is_known_where_proc_hides_others(option: str, hidden: bool) -> None:
    ask = "import gputui.process.procfs as p; print(p.hides_others())"
    line = (
        f"mount -t proc -o {option} proc /proc && "
        f"setpriv --reuid {ALICE} --regid {ALICE} --clear-groups {sys.executable} -c '{ask}'; "
        "exit $?"  # not exec: the first process is to be another user's
    )
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", line]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd="/", env={"PYTHONPATH": ROOT}
    )
    assert done.stdout == f"{hidden}\n", done.stderr


def test_a_note_of_any_length_keeps_its_promised_end(folder: Path) -> None:
    mine = Claims(folder)
    mine.claim(GPUS[:1], replace(TEXT, text="名" * 10_000, only_held=True))
    note = seen(folder)[GPUS[0]].note
    assert note.text.startswith("名名名") and (note.until, note.only_held) == (2.0, True)
    mine.release()


def test_one_may_stand_in_line_for_the_instances_of_many_gpus(folder: Path) -> None:
    mine, uuids = Claims(folder), [f"MIG-{number:036}" for number in range(512)]
    mine.wait_in_line(uuids, 512, TEXT)
    assert [each.uuids for each in mine.tickets()] == [tuple(uuids)]
    mine.leave_line()


def test_a_full_disk_takes_claims_without_notes_and_no_tickets(folder: Path, start: Start) -> None:
    size = "size=8k,mode=1777"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    try:
        (folder / "filler").write_bytes(bytes(8192))
        mine, bob = Claims(folder), start(BOB)
        assert mine.claim(GPUS[:1], TEXT) == ()
        assert bob.claim(GPUS[:1], TEXT) == GPUS[:1]
        assert seen(folder)[GPUS[0]].note == Note()
        with pytest.raises(OSError, match="No space left"):
            mine.wait_in_line(GPUS, 1, TEXT)
        assert [path.name for path in folder.glob("ticket-*")] == []
        mine.release()
        bob.end()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
