"""Every task has an owner and ends with it: none is started and then forgotten."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import gputui
from gputui.tasks import Tasks

ROOT = Path(gputui.__file__).parent
STARTS = {"create_task", "ensure_future"}
OWNERS = {"group", "tasks"}
"""Names of an `asyncio.TaskGroup`."""

NOT_YET = {
    "run/ongoing.py": 4,
    "run/preset_run.py": 1,
    "cli/interrupts.py": 1,
    "cluster/running.py": 4,
    "fleet/deploy/opening.py": 3,
    "fleet/host.py": 1,
    "fleet/ssh/connection.py": 1,
    "fleet/ssh/connector.py": 1,
    "fleet/ssh/identities.py": 1,
    "head/head.py": 1,
    "worker/transfers/comm.py": 1,
    "worker/worker.py": 2,
}
"""Files that still start tasks by hand, and how many: may only shrink."""


def test_tasks_are_started_by_their_owners_only() -> None:
    more = []
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        lines = [call.lineno for call in _starts(ast.parse(path.read_text()))]
        if name != "tasks.py" and len(lines) > NOT_YET.get(name, 0):
            more.append(f"{name}: lines {lines}")
    assert not more, "start these with gputui.tasks.Tasks or an asyncio.TaskGroup"


BLOCKING = {
    "fcntl.flock",
    "os.waitid",
    "os.waitpid",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "subprocess.check_output",
    "subprocess.run",
    "time.sleep",
}


def test_no_coroutine_waits_in_a_call_that_holds_its_loop() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef):
                calls = (each for each in _own(node) if isinstance(each, ast.Call))
                found += [f"{path}:{c.lineno}" for c in calls if ast.unparse(c.func) in BLOCKING]
    assert not found, "make these calls in a thread, with a bound"


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function does itself, without the functions that it defines."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _own(child)


def _starts(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that start a task which belongs to no group."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        owned = isinstance(owner, ast.Name) and owner.id in OWNERS
        if node.func.attr in STARTS and not owned:
            yield node


async def test_a_task_that_missed_its_cancellation_is_cancelled_again() -> None:
    misses = 1

    async def work() -> None:
        nonlocal misses
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                misses -= 1
                if misses < 0:
                    raise

    tasks = Tasks(lambda name, error: None)
    task = tasks.start(work(), "work")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await tasks.close()
    assert task.cancelled()
