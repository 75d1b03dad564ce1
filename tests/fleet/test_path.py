"""The way of a hosts line to its worker, as `gputui.fleet` writes it down, has no gap.

What counts: a function that passes the line, its host or its worker on to the next one, by a call,
as a task or callback that it names, or in a message that it makes or takes; and its file. What only
computes a value for one of these, or carries bytes (channels, streams, the codec), does not.
"""

import ast
import re
from itertools import chain
from pathlib import Path

import gputui
import gputui.fleet

ROOT = Path(gputui.__file__).parent
MOST_FILES = 17
MOST_FUNCTIONS = 46
ROW = re.compile(r"^    (\S+\.py) +(.+)$", re.MULTILINE)
MESSAGES = {"Configure", "Facts", "Reach", "Reached", "StartWorkers", "ForkWorker"}


def written() -> list[tuple[str, str]]:
    """Return (file, function) of every step, in order."""
    assert gputui.fleet.__doc__ is not None
    rows = ROW.findall(gputui.fleet.__doc__)
    return [(file, name) for file, names in rows for name in names.split(", ")]


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
    for number, (file, step) in enumerate(written()):
        function = functions(file).get(step)
        assert function is not None, f"{file} has no {step}"
        owner, _, own = step.rpartition(".")
        mine = names_in(function)
        called = (owner if own == "__init__" else own) in named
        assert not number or called or mine & named & MESSAGES, f"{step}: nothing leads to it"
        named |= mine


def test_the_way_gets_no_longer() -> None:
    steps = written()
    files = {file for file, _ in steps}
    assert len(set(steps)) == len(steps)
    assert len(files) <= MOST_FILES
    assert len(steps) <= MOST_FUNCTIONS
