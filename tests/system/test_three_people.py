"""Three people share one box and two of them three: real users, commands, agents and locks.

Each person's commands run as a user of their own, and reach each box by SSH as that user. What
runs on a GPU locks a file of the test's own for it, which nobody else may have at that time. After
each round the kernel, lslocks and `gputui who` must say the same. GPUTUI_PEOPLE_S sets how long.
"""

import contextlib
import fcntl
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from tests import fakes
from tests.agent.test_claims import protected_regular  # noqa: F401
from tests.processes import lives, state_of
from tests.sshd import AsyncsshServer, SshHost, SshHosts
from tests.system.conftest import Command, a_command, wait_until
from tests.system.parts import part_of

LENGTH_S = float(os.environ.get("GPUTUI_PEOPLE_S", "45"))
LEASE_S = 6
AGREE_S = 180
BOXES = {"box1": 4, "box2": 2, "box3": 2}
PEOPLE = {"daemon": ("box1", "box2", "box3"), "bin": ("box1", "box2", "box3"), "games": ("box1",)}
"""Users that every Linux has (ssh wants a name for each), and the boxes that they know."""
MOST_AT_ONCE = 3
"""Commands of one person."""
DAY_S = 86400.0

HOLD = """
import fcntl, os, time

def hold(uuids, seconds):
    "Lock the file of each of these GPUs; leave another file where somebody has one."
    files = [open(f"{ledger}/{{uuid}}") for uuid in uuids]
    for file, uuid in zip(files, uuids):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            open(f"{ledger}/collision-{{uuid}}-{{os.getpid()}}", "w").close()
    time.sleep(seconds)

if __name__ == "__main__":
    import signal, sys
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if len(sys.argv) > 2:
        claim = os.open(sys.argv[2], os.O_RDONLY)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(3)
    hold(os.environ["CUDA_VISIBLE_DEVICES"].split(","), float(sys.argv[1]))
"""
SCRIPT = """
from dask.distributed import Client, get_worker

def work(seconds):
    import sys
    sys.path.insert(0, {folder!r})
    from hold import hold
    hold(["GPU-" + get_worker().name.replace(":gpu", "-")], seconds)

with Client() as client:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    client.gather([client.submit(work, {seconds}, workers=[at], pure=False) for at in workers])
"""
CLOCK = """
import time
real = time.time

def now():
    try:
        with open({path!r}) as file:
            return real() + float(file.read())
    except (OSError, ValueError):
        return real()

time.time = now
"""

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="users are played by root alone"),
    pytest.mark.skipif(not shutil.which("lslocks"), reason="needs util-linux"),
]


@dataclass
class Town:
    """The boxes, and what all people and the test share."""

    folder: Path
    """Open to all."""

    def __post_init__(self) -> None:
        self.ledger = self.folder / "ledger"
        for folder in (self.ledger, *map(self.claims, BOXES)):
            folder.mkdir()
            folder.chmod(0o1777)
        os.chown(self.claims("box2"), 1, 1)
        for uuid in self.uuids:
            (self.ledger / uuid).touch()
        (self.folder / "hold.py").write_text(HOLD.format(ledger=self.ledger))

    def claims(self, box: str) -> Path:
        """Return a box's folder of claims."""
        return self.folder / box

    @property
    def uuids(self) -> list[str]:
        """The GPUs of all boxes."""
        return [f"GPU-{box}-{number}" for box, count in BOXES.items() for number in range(count)]

    def environ(self, box: str) -> dict[str, str]:
        """Return what tells a process of this machine that it runs on a box."""
        gpus = [{"uuid": f"GPU-{box}-{number}"} for number in range(BOXES[box])]
        return {
            "GPUTUI_CLAIMS": str(self.claims(box)),
            "GPUTUI_FAKE_NVML": json.dumps({"gpus": gpus}),
        }

    def locked(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the holder of each claim, and of each file of the ledger, as the kernel says.

        It is read in pieces: while others lock, a line may be missed, or come twice.
        """
        holders: dict[int, int] = {}
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[3] == "WRITE":
                holders[int(words[5].split(":")[2])] = int(words[4])
        return self._by_uuid(holders, self._lock_files()), self._by_uuid(holders, self._ledger())

    def listed(self) -> dict[str, int]:
        """Return the holder of each claim, as lslocks says."""
        columns = ["lslocks", "--json", "-o", "PID,INODE,MODE"]
        printed = subprocess.run(columns, capture_output=True, check=True).stdout
        table = json.loads(printed or '{"locks": []}')  # nobody on this machine holds a lock
        holders = {each["inode"]: each["pid"] for each in table["locks"] if each["mode"] == "WRITE"}
        return self._by_uuid(holders, self._lock_files())

    def _lock_files(self) -> dict[str, Path]:
        return {uuid: self.claims(uuid.split("-")[1]) / f"{uuid}.lock" for uuid in self.uuids}

    def _ledger(self) -> dict[str, Path]:
        return {uuid: self.ledger / uuid for uuid in self.uuids}

    def _by_uuid(self, holders: dict[int, int], files: dict[str, Path]) -> dict[str, int]:
        inodes = {uuid: path.stat().st_ino for uuid, path in files.items() if path.exists()}
        return {uuid: holders[inode] for uuid, inode in inodes.items() if inode in holders}

    def collisions(self) -> list[str]:
        """Return which GPUs two had at the same time."""
        return [path.name for path in self.ledger.glob("collision-*")]


@dataclass
class Doing:
    """A command that somebody started."""

    what: str
    process: "subprocess.Popen[str]"
    errors: Path
    ends_by_itself: bool
    locks: list[IO[str]] = field(default_factory=list)
    """The test's own locks in the ledger, for what a `claim` printed that it holds."""
    disturbed: bool = False
    """Whether it, or what it needs, was killed, stopped, interrupted or may be released."""

    def forget(self) -> None:
        """Unlock the ledger: from now on it may end."""
        self.disturbed = True
        for file in self.locks:
            file.close()
        self.locks = []


class Person:
    """A user who does one thing after another."""

    def __init__(self, town: Town, name: str, command: Command, seed: int) -> None:
        self.town, self.name, self.command = town, name, command
        self.boxes = PEOPLE[name]
        self.choose = random.Random(seed)
        self.doing: list[Doing] = []
        self.done: Counter[str] = Counter()
        self.stopped: int | None = None
        """An agent of theirs."""
        self.kept: set[str] = set()
        """What it held when it was stopped."""

    def act(self) -> None:
        """Do something at random."""
        self.go_on()
        self.look()
        begin = (self.claim, self.claim, self.program, self.program, self.cluster, self.outsider)
        disturb = (self.interrupt, self.kill, self.kill_part, self.stop, self.release, self.jump)
        ways = disturb if len(self.doing) >= MOST_AT_ONCE else (*begin, *disturb)
        way = self.choose.choice(ways)
        self.done[way.__name__] += 1
        way()

    def hosts(self) -> str:
        """Return some of the boxes that this person knows."""
        some = self.choose.sample(self.boxes, self.choose.randint(1, len(self.boxes)))
        return ",".join(some)

    def claim(self) -> None:
        ends = self.choose.random() < 0.3
        words = ["--for", "4s"] if ends else []
        self.begin(
            "claim", "claim", self.hosts(), "-n", self.count(), *self.wait(), *words, by=ends
        )

    def program(self) -> None:
        hold = (sys.executable, str(self.town.folder / "hold.py"), str(self.choose.uniform(1, 15)))
        per = self.choose.choice(("gpu", "host"))
        words = (self.hosts(), "--exec", "-n", self.count(), "--per", per, "--pin", "uuid")
        self.begin("program", *words, "--cwd", "/", *self.wait(), "--", *hold)

    def cluster(self) -> None:
        seconds = self.choose.uniform(1, 10)
        script = self.command.folder / f"script{self.done['cluster']}.py"
        script.write_text(SCRIPT.format(folder=str(self.town.folder), seconds=seconds))
        name = f"run{self.done['cluster']}"
        words = ("--run", str(script), "--name", name, "--gpus", self.count(), *self.wait())
        self.begin("cluster", self.hosts(), *words)

    def outsider(self) -> None:
        """Hold a GPU without gputui, by the documented convention."""
        box = self.choose.choice(self.boxes)
        uuid = f"GPU-{box}-{self.choose.randrange(BOXES[box])}"
        file = self.town.claims(box) / f"{uuid}.lock"
        if file.exists():
            hold = (sys.executable, str(self.town.folder / "hold.py"), "5", str(file))
            words, env = (*self.command.before, *hold), {"CUDA_VISIBLE_DEVICES": uuid}
            process = self.command.start_other(*words, env=env, **self.pipes())
            self.started("outsider", process, True)

    def interrupt(self) -> None:
        if self.doing:
            each = self.choose.choice(self.doing)
            each.forget()
            each.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if self.doing:
            each = self.choose.choice(self.doing)
            each.forget()
            each.process.send_signal(signal.SIGKILL)

    def kill_part(self) -> None:
        """Kill a head or an agent."""
        if pids := self.pids("agent") + self.pids("head"):
            self.disturb()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.choose.choice(pids), signal.SIGKILL)

    def stop(self) -> None:
        """Stop an agent that holds something; what it holds stays held until it goes on."""
        pids = {*self.pids("agent")} & {*self.town.locked()[0].values()}
        if pids:
            self.disturb()
            self.stopped = pid = self.choose.choice(sorted(pids))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            # One that was about to end is not stopped by that, and ends.
            wait_until(lambda: state_of(pid) in "TZX")
            if state_of(pid) == "T":
                self.kept = {uuid for uuid, each in self.town.locked()[0].items() if each == pid}

    def go_on(self) -> None:
        """Have the agent that is stopped go on."""
        if self.stopped is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.stopped, signal.SIGCONT)
        self.stopped, self.kept = None, set()

    def release(self) -> None:
        self.disturb()
        self.begin("release", "claim", ",".join(self.boxes), "--release")

    def jump(self) -> None:
        """Set the clock, as all of this person's processes read it."""
        by_s = self.choose.uniform(-DAY_S, DAY_S)
        (self.command.folder / "clock.txt").write_text(str(by_s))

    def count(self) -> str:
        return str(self.choose.randint(1, 3))

    def wait(self) -> list[str]:
        return ["--wait", "30s"] if self.choose.random() < 0.7 else []

    def disturb(self) -> None:
        for each in self.doing:
            each.forget()

    def pids(self, part: str) -> list[int]:
        """Return all agents, or heads, of this person."""
        found = []
        for pid in self.command.pids():
            with contextlib.suppress(OSError):
                found += [pid] * (part_of(pid) == part)
        return found

    def pipes(self) -> dict[str, Any]:
        self._errors = self.command.folder / f"errors{len(self.command.started)}.txt"
        self._descriptor = os.open(self._errors, os.O_WRONLY | os.O_CREAT)
        return {"stderr": self._descriptor, "process_group": 0}

    def begin(self, what: str, *words: str, by: bool = True) -> None:
        self.started(what, self.command.start(*words, **self.pipes()), by)

    def started(self, what: str, process: "subprocess.Popen[str]", by: bool) -> None:
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        os.close(self._descriptor)
        # One that comes to the boxes later ends what was claimed while it was on its way.
        releases = any(each.what == "release" for each in self.doing)
        self.doing.append(Doing(what, process, self._errors, by, disturbed=releases))

    def look(self) -> None:
        """Lock the ledger for what was claimed; see what has ended, and how."""
        for each in list(self.doing):
            status = each.process.poll()
            assert each.process.stdout
            with contextlib.suppress(TypeError):  # nothing to read now
                for line in each.process.stdout.read().splitlines():
                    if each.what == "claim" and not (each.ends_by_itself or each.disturbed):
                        self.hold(each, line.split()[2])
            if status is not None:
                self.doing.remove(each)
                said = each.errors.read_text()
                # Interrupted, Dask prints some, and Python before it has come to gputui.
                theirs = each.disturbed and (each.what == "cluster" or "gputui" not in said)
                assert theirs or "Traceback" not in said, said
                assert each.disturbed or status in (0, 3), (each, said)
                each.forget()

    def hold(self, claim: Doing, uuid: str) -> None:
        file = (self.town.ledger / uuid).open()
        claim.locks.append(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (self.town.ledger / f"collision-{uuid}").touch()

    def end(self) -> None:
        """End everything, and wait for it."""
        self.go_on()
        self.disturb()
        for each in self.doing:
            each.process.send_signal(signal.SIGINT)
        for each in self.doing:
            each.process.wait(60)


@pytest.fixture
def town(open_folder: Path) -> Town:
    return Town(open_folder)


@pytest.fixture
def people(town: Town) -> Iterator[list[Person]]:
    """Three users, with an SSH server for each box that they know."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(a_person(town, name)) for name in PEOPLE]


def reading() -> tuple[str, ...]:
    """Let users run an interpreter that is in a folder of root's."""
    if all(folder.stat().st_mode & 1 for folder in Path(sys.executable).resolve().parents):
        return ()
    return ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@contextlib.contextmanager
def a_person(town: Town, name: str) -> Iterator[Person]:
    home, user = town.folder / name, pwd.getpwnam(name)
    (home / "command").mkdir(parents=True)
    with a_command(home / "command") as command, contextlib.ExitStack() as stack:
        hosts = SshHosts(home / "ssh")
        hosts.folder.mkdir()
        hosts.make_keys()
        (command.folder / "sitecustomize.py").write_text(
            CLOCK.format(path=str(command.folder / "clock.txt"))
        )
        path = os.pathsep.join([str(Path(fakes.__file__).parent), str(command.folder)])
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        command.before = ("setpriv", *ids, *reading(), "--")
        command.env |= {
            **hosts.environment,
            "HOME": str(home),
            "TMPDIR": str(command.runtime),
            "PYTHONPATH": path,
            "DASK_GPUTUI__LEASE": str(LEASE_S),
            "DASK_GPUTUI__STAGE_TIMEOUT": "60",  # however loaded this machine is
        }
        for box in PEOPLE[name]:
            there = home / box
            there.mkdir()
            folders = {"HOME": there, "XDG_CACHE_HOME": home / "cache", "XDG_RUNTIME_DIR": there}
            environ = {name: str(folder) for name, folder in folders.items()}
            environ |= {"TMPDIR": str(there), "XDG_STATE_HOME": str(there), "PYTHONPATH": path}
            environ |= {"GPUTUI_TEST": command.env["GPUTUI_TEST"]} | town.environ(box)
            server = AsyncsshServer(hosts, shell=(*command.before, "/bin/sh"), environ=environ)
            stack.callback(server.stop)
            server.start()
            added = SshHost(box, "127.0.0.1", server.port, name)
            hosts.describe(*hosts.hosts, added)
        for folder in (home, command.runtime):
            subprocess.run(["chown", "-R", f"{name}:", str(folder)], check=True)
            folder.chmod(0o700)
        person = Person(town, name, command, user.pw_uid)
        try:
            yield person
        finally:
            person.end()
            # asyncssh looks for a library by ctypes.util, which has gcc write to a file without a
            # prefix: a command that is killed in these milliseconds leaves that, empty.
            for file in command.runtime.glob("tmp????????"):
                if file.is_file() and not file.stat().st_size:
                    file.unlink()


@pytest.mark.slow
@pytest.mark.timeout(LENGTH_S + 300)
def test_three_people_never_have_one_gpu_at_a_time(town: Town, people: list[Person]) -> None:
    rounds, end = 0, time.monotonic() + LENGTH_S
    choose = random.Random(7)
    while time.monotonic() < end:
        for person in choose.choices(people, k=4):
            person.act()
        if choose.random() < 0.5:
            time.sleep(choose.uniform(0.0, 3.0))
        agree(town, people)
        rounds += 1
        print(f"round {rounds}", flush=True)
    print(f"{rounds} rounds", sum((person.done for person in people), Counter()))
    for person in people:
        person.end()
    wait_until(lambda: town.locked() == ({}, {}), LEASE_S + 20, lambda: str(town.locked()))
    for person in people:
        (person.command.folder / "clock.txt").unlink(missing_ok=True)
        claim = partial(person.command, "claim", "box1", "-n", "4", "--for", "0s")
        # Nobody waits for the dead, once the lease of what was killed last is over.
        wait_until(lambda claim=claim: claim().returncode == 0, LEASE_S + 20)


def agree(town: Town, people: list[Person]) -> None:
    """Wait until the kernel, lslocks and `who` say the same: no holder is dead, nobody else's."""
    said: list[object] = []

    def look() -> bool:
        for person in people:
            person.look()
        assert town.collisions() == []
        claimed, used = town.locked()
        who, listed = said_by_who(people[0]), town.listed()
        said[:] = claimed, used, who, listed, [(each.doing, each.kept) for each in people]
        for person in people:
            person.look()
        kept = {uuid: person.stopped for person in people for uuid in person.kept}
        if not (listed == claimed and kept.items() <= claimed.items()):
            return False
        try:
            claimants = {uuid: Path(f"/proc/{pid}").owner() for uuid, pid in claimed.items()}
            users = {uuid: Path(f"/proc/{pid}").owner() for uuid, pid in used.items()}
        except FileNotFoundError:
            return False
        for person in people:
            for each in person.doing:
                users |= {Path(file.name).name: person.name for file in each.locks}
        alive = all(map(lives, claimed.values())) and users.items() <= claimants.items()
        return alive and who == {uuid: (pid, claimants[uuid]) for uuid, pid in claimed.items()}

    wait_until(look, AGREE_S, lambda: str(said))


def said_by_who(person: Person) -> dict[str, tuple[int, str]]:
    """Return the holders of claims on all boxes, as `gputui who` says."""
    done = person.command("who", ",".join(BOXES), "--json")
    assert done.returncode == 0, done.stderr
    hosts = json.loads(done.stdout)
    assert [len(host.get("gpus", ())) for host in hosts] == list(BOXES.values()), hosts
    return {
        gpu["uuid"]: (gpu["claim"]["pid"], gpu["claim"]["user"])
        for host in hosts
        for gpu in host["gpus"]
        if gpu["claim"]
    }
