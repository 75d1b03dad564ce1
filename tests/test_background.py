"""Every task has an owner and ends with it: none is started and then forgotten."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import gputui
from gputui.process.background import Background, Shared, together

ROOT = Path(gputui.__file__).parent
STARTS = {"create_task", "ensure_future"}
OWNERS = {"tasks", "self._connection"}
"""Names of an owner of tasks, and of an asyncssh connection: it ends its tasks with itself."""


def test_tasks_are_started_by_their_owners_only() -> None:
    more = []
    for path in sorted(ROOT.rglob("*.py")):
        if path != ROOT / "process/background.py":
            calls = _starts(ast.parse(path.read_text()))
            more += [f"{path.relative_to(ROOT)}:{call.lineno}" for call in calls]
    assert not more, "start these with process.background"


def test_no_task_group_leaves_its_task_half_cancelled() -> None:
    names = {"asyncio.TaskGroup", "TaskGroup"}
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncWith):
                opened = {ast.unparse(each.context_expr).partition("(")[0] for each in node.items}
                found += [f"{path.relative_to(ROOT)}:{node.lineno}"] if opened & names else []
    assert not found, "use process.background.together: see there"


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
    """Yield the calls that start a task which no owner has, nor the function that awaits it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        owned = ast.unparse(owner) in OWNERS
        if node.func.attr in STARTS and not owned and node not in _awaited(tree):
            yield node


def _awaited(tree: ast.AST) -> set[ast.AST]:
    """Return what is assigned to a local name that the same function awaits or cancels."""
    found: set[ast.AST] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        own = list(_own(function))
        ends = [n.value for n in own if isinstance(n, ast.Await)]
        ends += [n for n in own if isinstance(n, ast.Attribute) and n.attr == "cancel"]
        ended = {n.id for end in ends for n in ast.walk(end) if isinstance(n, ast.Name)}
        for node in own:
            if isinstance(node, ast.Assign):
                names = {n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)}
                found |= set(ast.walk(node.value)) if names & ended else set()
    return found


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

    tasks = Background(lambda name, error: None)
    task = tasks.start(work(), "work")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await tasks.close()
    assert task.cancelled()


async def test_a_shared_result_is_made_once_and_survives_a_waiter_that_leaves() -> None:
    made, may_end = [], asyncio.Event()

    async def work() -> int:
        made.append(1)
        await may_end.wait()
        return 7

    shared = Shared[int]()
    first, second = (asyncio.ensure_future(shared.get(work)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    may_end.set()
    assert (await second, await shared.get(work), len(made)) == (7, 7, 1)
    assert await shared.close() == 7


async def test_a_shared_result_is_made_again_after_a_failure_and_when_it_is_of_no_use() -> None:
    outcomes: list[int | OSError] = [OSError("full"), 1, 2]

    async def work() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    shared = Shared[int](usable=lambda result: result > 1)
    with pytest.raises(OSError, match="full"):
        await shared.get(work)
    assert await shared.get(work) == 1
    assert [await shared.get(work) for _ in range(2)] == [2, 2]


async def test_shared_work_that_nobody_wants_any_more_is_cancelled() -> None:
    shared = Shared[None]()
    task = shared.begin(asyncio.Event().wait)  # type: ignore[arg-type]
    assert await shared.close() is None
    assert task.cancelled()
    assert await Shared[None]().close() is None


async def test_kept_work_that_a_stray_cancellation_ends_begins_again() -> None:
    began = asyncio.Queue[asyncio.Task[object] | None]()

    async def work() -> None:
        began.put_nowait(asyncio.current_task())
        await asyncio.Event().wait()

    tasks = Background(lambda name, error: pytest.fail(f"{name}: {error}"))
    kept = tasks.keep(work, "kept")
    stray = await began.get()
    assert stray is not None
    stray.cancel()
    assert await asyncio.wait_for(began.get(), 5) is not stray
    await tasks.close()
    assert kept.cancelled()


async def test_a_part_that_fails_leaves_the_task_of_the_others_as_it_was() -> None:
    async def fail() -> None:
        raise LookupError("broken")

    with pytest.raises(LookupError):
        await together(fail(), asyncio.Event().wait())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
