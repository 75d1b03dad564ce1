"""The whole thing, as people run it: the command in a process of its own, and what it leaves."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gputui.cli import run_command
from tests import fakes
from tests.processes import command_of, marked
from tests.terminals import Emulated

GONE_S = 20
"""Within so long nothing of a dead cluster may be left."""
BOUND_S = 60
"""Within so long all else comes about, on a busy machine too."""

END_S = 5.0
"""How long a command may take to end in order."""
Found = TypeVar("Found")


def environment() -> dict[str, str]:
    """Return this process's environment; pytest changes it while other threads start commands."""
    while True:
        with contextlib.suppress(KeyError, RuntimeError):
            return dict(os.environ)


@dataclass
class Command:
    """Runs `gputui` with folders of its own, and finds what it left running."""

    folder: Path
    runtime: Path
    """Where all that a cluster makes is made: sockets, connection files, scratch folders."""
    env: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    """Words of a command that starts another one."""
    program: tuple[str, ...] = ("-m", "gputui")
    started: list["subprocess.Popen[str]"] = field(default_factory=list)
    screens: list[Emulated] = field(default_factory=list)

    def words(self, *arguments: str) -> list[str]:
        return [*self.before, sys.executable, *self.program, *arguments]

    def start(self, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
        return self.start_other(*self.words(*arguments), **more)

    def start_other(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        """Start another command with this one's folders; `env` is added to its environment."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {**environment(), **self.env, **more.pop("env", {})}
        process = subprocess.Popen(
            words,
            text=True,
            cwd=self.folder,
            env=env,
            **{"stdin": subprocess.DEVNULL, **pipes, **more},
        )
        self.started.append(process)
        return process

    def open(self, *arguments: str, **env: str) -> Emulated:
        """Start the command in a terminal of its own."""
        self.screens.append(Emulated.start(*self.words(*arguments), env={**self.env, **env}))
        return self.screens[-1]

    def __call__(
        self, *arguments: str, timeout_s: float = 90
    ) -> "subprocess.CompletedProcess[str]":
        return self.run_other(*self.words(*arguments), timeout_s=timeout_s)

    def ok(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command to its good end."""
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    def run_other(
        self, *words: str, given: str | None = None, timeout_s: float = 90, **more: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run another command with this one's folders to its end; `given` is its stdin."""
        stdin = {} if given is None else {"stdin": subprocess.PIPE}
        process = self.start_other(*words, **stdin, **more)
        try:
            out, err = process.communicate(given, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"{' '.join(words)} did not end\n{out}\n{err}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json", "--quiet").stdout)

    def left(self) -> list[str]:
        """Return the command lines of this command's processes that still run."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                found.append(f"{pid} {' '.join(command_of(pid))}")
        return found

    def pids(self) -> list[int]:
        """Return this command's processes, and all that they started."""
        return marked(f"GPUTUI_TEST={self.folder}")

    def assert_nothing_left(self) -> None:
        """Wait until no process is left; nor may a file be, once clusters were listed."""
        wait_until(lambda: not self.left(), GONE_S, lambda: f"left: {self.left()}")
        if self.files():
            assert self("ls").stdout == ""
        assert self.files() == []

    def files(self) -> list[str]:
        """Return all files and folders that a cluster made, but for the folder of sockets."""
        return [str(path) for path in self.runtime.rglob("*") if path != self.runtime / "gputui"]

    def end_clusters(self) -> None:
        """Stop what clusters there may still be."""
        if self.left() or self.files():
            self("down", "--all")

    def end(self) -> None:
        """End what was started and has not ended."""
        for screen in self.screens:
            screen.kill()
        for process in self.started:
            process.send_signal(signal.SIGINT)
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()


def found(find: Callable[[], Found | None], why: Callable[[], str] = lambda: "") -> Found:
    end = time.monotonic() + BOUND_S
    while not (it := find()):
        assert time.monotonic() < end, why() or f"not found within {BOUND_S} s"
        time.sleep(0.02)
    return it


def wait_until(
    holds: Callable[[], object], bound_s: float = BOUND_S, why: Callable[[], str] = lambda: ""
) -> None:
    end = time.monotonic() + bound_s
    while not holds():
        assert time.monotonic() < end, why() or f"not within {bound_s} s"
        time.sleep(0.05)


@pytest.fixture
def gputui(tmp_path: Path) -> Iterator[Command]:
    """The command, with a state and a runtime folder of its own; nothing of it may be left."""
    with a_command(tmp_path) as command:
        yield command


@pytest.fixture(scope="module")
def ended(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Any], Any]]:
    """A function that returns what the module's `played` returns for a `case` of its tests.

    Most of a case is waiting: all that were chosen are played, three at a time.
    """
    tests = [each for each in request.session.items if "ended" in getattr(each, "fixturenames", ())]
    cases = [each.callspec.params["case"] for each in tests if each.module is request.module]
    with ThreadPoolExecutor(3) as pool:
        ends = {
            case: pool.submit(request.module.played, case, tmp_path_factory.mktemp("case"))
            for case in cases
        }
        yield lambda case: ends[case].result()
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def four_gpus(gputui: Command) -> None:
    """Have the command find four made-up GPUs on this machine."""
    gputui.env["PYTHONPATH"] = str(Path(fakes.__file__).parent)
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 4})


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """A function that runs the command in this process, in tmp_path: for words that start nothing.

    A process of its own would mostly import.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CACHE", "RUNTIME"):
        folder = tmp_path / name.lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}", str(folder))

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        status = run_command(list(arguments))
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run


@contextlib.contextmanager
def a_command(folder: Path) -> Iterator[Command]:
    """Yield the command; afterwards end all that it started, and find nothing left of it.

    The cache is that of all commands, as a user's is: packing the agent is half of a start.
    """
    (folder / "state").mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="gt-", dir="/tmp") as runtime:
        env = {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder.parent / "cache"),
            "XDG_RUNTIME_DIR": runtime,
            "TMPDIR": runtime,
            "GPUTUI_TEST": str(folder),
        }
        command = Command(folder, Path(runtime), env)
        try:
            yield command
        finally:
            command.end()
            command.end_clusters()
        command.assert_nothing_left()
