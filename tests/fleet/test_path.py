"""The way of a hosts line to its worker, as `gputui.fleet` writes it down, has no gap.

A step is a function that passes the line, its host or its worker on to the next one, by a call, as
a task or callback that it names, or in a message that it makes or takes. What a step asks for and
waits for (a connection, the host's facts, whether it reaches the scheduler) stands further in and
is counted apart; what computes a value at once, or carries bytes (channels and their loops,
streams, the codec), is not counted.
"""

import ast
import re
from itertools import chain
from pathlib import Path

import gputui
import gputui.fleet

ROOT = Path(gputui.__file__).parent
MOST_FILES, MOST_STEPS = 12, 25
MOST_FILES_IN_ALL, MOST_IN_ALL = 15, 35
ROW = re.compile(r"^    (    )?(\S+\.py) +(.+)$", re.MULTILINE)
MESSAGES = {"Configure", "Facts", "Reach", "Reached", "StartWorkers", "ForkWorker"}


def written() -> list[tuple[str, str, bool]]:
    """Return (file, function, whether it is asked for) of every line, in order."""
    assert gputui.fleet.__doc__ is not None
    rows = ROW.findall(gputui.fleet.__doc__)
    return [(file, name, bool(asked)) for asked, file, names in rows for name in names.split(", ")]


def functions(file: str) -> dict[str, ast.AST]:
    """Return the functions of a module, methods as `Class.method`."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}": each for each in node.body if hasattr(each, "args")
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
    return found


def names_in(function: ast.AST) -> set[str]:
    """Return what a function names, without its own signature's result."""
    nodes = chain.from_iterable(ast.walk(node) for node in ast.iter_child_nodes(function))
    return {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}


def test_every_step_is_named_or_sent_a_message_by_one_before_it() -> None:
    named: set[str] = set()
    for number, (file, step, _) in enumerate(written()):
        function = functions(file).get(step)
        assert function is not None, f"{file} has no {step}"
        owner, _, own = step.rpartition(".")
        mine = names_in(function)
        called = (owner if own == "__init__" else own) in named
        assert not number or called or mine & named & MESSAGES, f"{step}: nothing leads to it"
        named |= mine


def test_the_way_gets_no_longer() -> None:
    lines = written()
    assert len(set(lines)) == len(lines)
    assert len({file for file, _, _ in lines}) <= MOST_FILES_IN_ALL
    assert len(lines) <= MOST_IN_ALL
    steps = [(file, step) for file, step, asked in lines if not asked]
    assert len({file for file, _ in steps}) <= MOST_FILES
    assert len(steps) <= MOST_STEPS
