"""Programs: started, fed, read as far as their reader takes it, signalled, and ended whole."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gputui.agent.supervisor import PROGRAMS_EVERY_S
from gputui.protocol.agent import Ping, Pong, Telemetry
from gputui.protocol.programs import (
    PIECE_BYTES,
    WINDOW_BYTES,
    BytesTaken,
    EndPrograms,
    Launch,
    ProgramExited,
    ProgramInput,
    ProgramOutput,
    ProgramStarted,
    ResizeTerminal,
    SignalProgram,
    StartProgram,
    packed,
    unpacked,
)
from tests.agent.driving import Driver
from tests.system.conftest import wait_until

NAME = "run/0"


class Programs(Driver):
    """A head that takes what programs print."""

    def run(self, *argv: str, name: str = NAME, memory_limit_bytes: int = 0, **how: object) -> None:
        launch = Launch(argv, **{"cwd": "/", **how})  # type: ignore[arg-type]
        self.send(StartProgram(name, launch, memory_limit_bytes=memory_limit_bytes))

    def python(self, code: str, **how: object) -> None:
        self.run(sys.executable, "-c", code, **how)  # type: ignore[arg-type]

    def feed(self, text: str, start: int = 0) -> None:
        self.send(ProgramInput(NAME, start, packed(text.encode())))

    async def prints(self, text: str) -> None:
        """Take output until this is in it."""
        said = b""
        while text.encode() not in said:
            said += unpacked((await self.wait_for(ProgramOutput)).data)

    async def finished(self, name: str = NAME) -> tuple[ProgramExited, str, str]:
        """Take all output until a program has ended; return its end, stdout and stderr."""
        said = {False: b"", True: b""}
        while True:
            message = await self.wait_for(ProgramOutput | ProgramExited)  # type: ignore[arg-type]
            if message.program != name:
                continue
            if isinstance(message, ProgramExited):
                return message, said[False].decode(), said[True].decode()
            data = unpacked(message.data)
            said[message.is_error] += data
            self.send(BytesTaken(name, message.start + len(data)))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Programs]:
    driver = Programs(tmp_path)
    await driver.connect()
    yield driver
    await driver.shut_down()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


async def test_a_program_has_the_hosts_environment_its_folder_and_its_two_outputs(
    host: Programs, tmp_path: Path
) -> None:
    code = (
        "import os, sys; print(os.getcwd(), os.environ['RANK'], os.environ['PYTHONUNBUFFERED'],"
        " os.environ['PATH'].split(':')[0]); print('no', file=sys.stderr); sys.exit(7)"
    )
    host.python(code, cwd=str(tmp_path), env=(("RANK", "3"),))
    exited, out, err = await host.finished()
    assert out == f"{tmp_path} 3 1 {Path(sys.executable).parent}\n" and err == "no\n"
    assert exited == ProgramExited(NAME, 7, "ended with exit status 7")


async def test_what_cannot_start_says_why_and_exits_as_in_a_shell(host: Programs) -> None:
    host.run("no-such-program", name="a")
    exited, _, err = await host.finished("a")
    assert (exited.status, err) == (127, "gputui: no-such-program: No such file or directory\n")
    host.run("", name="d")
    exited, _, err = await host.finished("d")
    assert (exited.status, err) == (126, "gputui: : execv() arg 2 first element cannot be empty\n")
    host.run("true", name="b", cwd="/none")
    exited, _, _ = await host.finished("b")
    assert (exited.status, exited.reason) == (
        126,
        "could not be started: /none: no such folder there, or not for this user",
    )
    host.run("true", name="e", cwd="~no-such-user")
    exited, _, _ = await host.finished("e")
    assert exited.reason.startswith("could not be started: ~no-such-user: no such folder there")
    host.run("pwd", name="c", cwd="/none", cwd_optional=True)
    assert await host.finished("c") == (
        ProgramExited("c", 0, "ended with exit status 0"),
        f"{Path.home()}\n",
        "",
    )


async def test_a_signal_reaches_the_whole_group_and_is_how_it_ended(host: Programs) -> None:
    host.run("sh", "-c", "sleep 1000 & echo $!; wait")
    output = await host.wait_for(ProgramOutput)
    host.send(SignalProgram(NAME, signal.SIGINT))
    exited, _, _ = await host.finished()
    assert (exited.status, exited.reason) == (-2, "was killed by SIGINT")
    wait_until(lambda: not alive(int(unpacked(output.data))))


async def test_one_that_ignores_sigterm_is_killed_with_its_daemons(host: Programs) -> None:
    daemon = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    print(os.getpid())\n"
        "time.sleep(1000)"
    )
    host.python(daemon)
    output = await host.wait_for(ProgramOutput)
    host.send(EndPrograms((NAME,), 0.3))
    exited = await host.wait_for(ProgramExited)
    assert exited.status == -signal.SIGKILL
    wait_until(lambda: not alive(int(unpacked(output.data))))


async def test_its_daemons_end_with_it(host: Programs) -> None:
    host.run("sh", "-c", "setsid sleep 1000 & echo $!")
    exited, out, _ = await host.finished()
    assert exited.status == 0
    wait_until(lambda: not alive(int(out)))


async def test_input_comes_in_order_and_ends(host: Programs) -> None:
    host.run("sort", has_input=True)
    host.feed("b\n")
    host.feed("b\na\n", 0)  # sent again from the start, after a cut
    await host.wait_for(BytesTaken, lambda taken: taken.end == 4)
    host.send(ProgramInput(NAME, 4, ""))
    assert (await host.finished())[1] == "a\nb\n"


async def test_one_that_reads_no_input_is_sent_it_in_vain(host: Programs) -> None:
    host.run("sh", "-c", "exec <&-; sleep 0.2; echo done", has_input=True)
    host.feed("x" * PIECE_BYTES)
    assert (await host.finished())[1] == "done\n"


async def test_a_gigabyte_waits_for_its_reader(host: Programs) -> None:
    host.run("head", "-c", "1000000000", "/dev/zero")
    got = 0
    while got < WINDOW_BYTES:
        message = await host.wait_for(ProgramOutput)
        got = message.start + len(unpacked(message.data))
    host.send(Ping(9))
    await host.wait_for(Pong, lambda pong: pong.number == 9)
    after = [each for each in host.seen if isinstance(each, ProgramOutput)]
    assert after[-1].start < WINDOW_BYTES, "it goes on though nobody has taken anything"
    host.send(BytesTaken(NAME, got))
    assert (await host.wait_for(ProgramOutput)).start == got
    host.send(SignalProgram(NAME, signal.SIGKILL))


async def test_what_many_programs_print_can_be_sent_again(host: Programs) -> None:
    names = {f"run/{rank}" for rank in range(40)}
    for name in names:
        host.run("head", "-c", "1000000", "/dev/zero", name=name)
    seen = 1
    while seen:
        await host.wait_for(Telemetry)
        seen = sum(isinstance(each, ProgramOutput) for each in host.seen) or len(
            names - {each.program for each in host.seen if isinstance(each, ProgramStarted)}
        )
        host.seen = [each for each in host.seen if not isinstance(each, ProgramOutput)]
    await host.hang_up()
    await host.connect()
    while names:
        names.discard((await host.wait_for(ProgramOutput)).program)
    host.send(Ping(1))
    await host.wait_for(Pong, lambda pong: pong.number == 1)


async def test_a_head_that_comes_back_gets_what_was_not_taken(host: Programs) -> None:
    host.run("sh", "-c", "echo one; sleep 0.5; echo two; exit 3")
    await host.wait_for(ProgramOutput)
    await host.hang_up()
    await host.connect()
    started = await host.wait_for(ProgramStarted)
    exited, out, _ = await host.finished()
    assert (started.program, out, exited.status) == (NAME, "one\ntwo\n", 3)


async def test_a_program_that_is_over_is_told_again_until_it_is_ended(host: Programs) -> None:
    host.run("true")
    exited, _, _ = await host.finished()
    await host.hang_up()
    await host.connect()
    assert await host.wait_for(ProgramExited) == exited
    host.send(EndPrograms((NAME,), 0.0))
    host.send(Ping(0))
    await host.wait_for(Pong)
    await host.hang_up()
    host.seen.clear()
    await host.connect()
    host.send(Ping(1))
    await host.wait_for(Pong)
    assert exited not in host.seen


async def test_a_terminal_is_one_of_its_size_and_sends_its_signals(host: Programs) -> None:
    code = (
        "import os, sys; print(os.isatty(0), os.get_terminal_size(), flush=True);"
        " sys.stdin.readline(); print(os.get_terminal_size(1)); sys.stdin.readline()"
    )
    host.python(code, rows=30, columns=100, has_input=True)
    await host.prints("True os.terminal_size(columns=100, lines=30)")
    host.send(ResizeTerminal(NAME, 40, 132))
    host.feed("\n")
    await host.prints("columns=132")
    host.feed("\x03", 1)
    exited, _, _ = await host.finished()
    assert exited.status == -signal.SIGINT


async def test_one_that_grows_over_its_limit_ends_with_what_it_started(host: Programs) -> None:
    code = (
        "import os, time\n"
        "held = bytearray(os.urandom(2**20) * 60)\n"
        "for _ in range(2):\n"
        "    if not os.fork(): own = bytearray(os.urandom(2**20) * 60); break\n"
        "print('up', flush=True); time.sleep(1000)"
    )
    host.python(code, memory_limit_bytes=150 * 2**20)
    exited, _, _ = await host.finished()
    reason = "reached its memory limit of 150 MiB there; give it more with memory="
    assert (exited.status, exited.reason) == (-signal.SIGKILL, reason)


async def test_what_processes_share_counts_once_against_their_limit(host: Programs) -> None:
    code = (
        "import os, sys, time\n"
        "held = bytearray(os.urandom(2**20) * 60)\n"
        "for _ in range(3):\n"
        "    if not os.fork(): break\n"
        f"time.sleep({2 * PROGRAMS_EVERY_S})"
    )
    host.python(code, memory_limit_bytes=150 * 2**20)
    assert (await host.finished())[0].status == 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_is_left_when_the_agent_is_ended(tmp_path: Path, end: signal.Signals) -> None:
    driver = Programs(tmp_path)
    facts = await driver.connect()
    driver.run("sh", "-c", "setsid sleep 1000 & sleep 1000 & echo $$; wait")
    await driver.wait_for(ProgramOutput)
    os.kill(facts.agent_pid, end)
    await driver.hang_up()
    await driver.nothing_left()
