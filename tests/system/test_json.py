"""What each `--json` prints is what `gputui help json` says: every field, with its type."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gputui.cli.commands import gputui as group
from gputui.cli.hosts import as_object
from gputui.cli.listing import FOLDER
from gputui.model.readings import DeviceReading
from tests.system.conftest import Command

HERE = "localhost gpus=none workers=1 nthreads=1 memory=512MiB"
SMALL = ("--run", "random-sum", "-p", "size=100", "--json", "--quiet")
TEXT = (FOLDER / "json.md").read_text(encoding="utf-8")
KINDS: dict[str, Any] = {
    "text": str,
    "number": int | float,
    "object": dict,
    "list": list,
    "true or false": bool,
    "any": object,
}


def documented(title: str) -> dict[str, str]:
    """Return field → type of a section."""
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", section, re.M))


def mismatches(value: dict[str, Any], fields: dict[str, str], inside: str = "") -> list[str]:
    """Return what is printed and not documented, documented and not printed, or of another type."""
    below = {name[len(inside) :]: kind for name, kind in fields.items() if name.startswith(inside)}
    own = {name: kind for name, kind in below.items() if not set("[.") & set(name)}
    found = [f"{inside}{name} is not documented" for name in value.keys() - own.keys()]
    found += [f"{inside}{name} is not printed" for name in own.keys() - value.keys()]
    for name in value.keys() & own.keys():
        kind, given = own[name], value[name]
        if not (isinstance(given, KINDS[kind.rstrip("?")]) or (given is None and kind[-1] == "?")):
            found.append(f"{inside}{name} is {given!r}, no {kind}")
        nested = given if isinstance(given, list) else [given] if isinstance(given, dict) else []
        deeper = f"{inside}{name}[]." if isinstance(given, list) else f"{inside}{name}."
        if any(each.startswith(deeper) for each in fields):
            found += [line for each in nested for line in mismatches(each, fields, deeper)]
    return found


def printed(gputui: Command, *words: str, status: int = 0) -> Any:
    done = gputui(*words)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_the_specification_is_as_documented_and_names_what_there_is(gputui: Command) -> None:
    found = printed(gputui, "--spec")
    assert mismatches(found, documented("gputui --spec")) == []
    named = {each["name"] for each in found["commands"]}
    assert {"gputui", "gputui up", "gputui runs"} <= named
    (unnamed,) = (each for each in found["commands"] if each["name"] == "gputui")
    backend = next(each for each in unnamed["options"] if each["names"] == ["--backend"])
    assert (backend["value"], backend["choices"][0]) == ("[auto|cupy|numpy]", "auto")
    assert found["presets"] == printed(gputui, "presets", "--json")
    assert {"key": "lease", "takes": "seconds above 0", "default": 10.0} in found["settings"]
    assert {"gpus", "env.X"} <= {*found["host_options"]}


@pytest.mark.slow
def test_a_preset_and_a_script_print_one_shape_and_their_failures_another(gputui: Command) -> None:
    Path(gputui.folder / "mine.py").write_text("print(1)")
    good = documented("gputui --run NAME --json")
    assert mismatches(printed(gputui, HERE, *SMALL), good) == []
    assert mismatches(printed(gputui, HERE, "--run", "mine.py", "--json"), good) == []
    bad = documented("gputui --run NAME --json, which failed")
    assert mismatches(printed(gputui, HERE, *SMALL, "-p", "size=-1", status=2), bad) == []
    Path(gputui.folder / "mine.py").write_text("raise SystemExit(7)")
    assert mismatches(printed(gputui, HERE, "--run", "mine.py", "--json", status=7), bad) == []


@pytest.mark.slow
def test_a_host_that_failed_has_the_documented_fields(gputui: Command) -> None:
    (failed,) = printed(gputui, f"{HERE}; nowhere.invalid gpus=none", *SMALL)["failed_hosts"]
    fields = documented("gputui --run NAME --json")
    assert mismatches(failed, fields, "failed_hosts[].") == []


def test_running_clusters_are_a_list_of_the_documented_objects(gputui: Command) -> None:
    assert gputui("up", HERE, "--name", "lab").returncode == 0
    (row,) = printed(gputui, "ls", "--json")
    assert mismatches(row, documented("gputui ls --json")) == []


def test_runs_are_a_list_and_one_run_an_object_of_the_documented_fields(gputui: Command) -> None:
    assert printed(gputui, "runs", "--json") == []
    printed(gputui, HERE, *SMALL)
    (row,) = printed(gputui, "runs", "--json")
    assert printed(gputui, "runs", "show", "last", "--json") == row
    assert mismatches(row, documented("gputui runs --json")) == []


def test_presets_are_a_list_of_the_documented_objects(gputui: Command) -> None:
    rows = printed(gputui, "presets", "--json")
    fields = documented("gputui presets --json")
    assert [line for row in rows for line in mismatches(row, fields)] == []
    assert printed(gputui, "presets", "svd", "--json") == [r for r in rows if r["name"] == "svd"]


def test_a_new_preset_is_an_object_with_both_files(gputui: Command) -> None:
    row = printed(gputui, "presets", "new", "mine", "--json")
    assert mismatches(row, documented("gputui presets new NAME --json")) == []


def test_gpus_of_hosts_are_a_list_of_the_documented_objects(gputui: Command) -> None:
    fields = documented("gputui who --json")
    for row in printed(gputui, "who", "localhost", "--json"):
        missing = {"gpus", "error"} - row.keys()
        kept = {name: kind for name, kind in fields.items() if name not in missing}
        assert mismatches(row, kept) == []
    device = as_object(DeviceReading("GPU-0f", "0", "NVIDIA H200"))
    assert mismatches(device, fields, "gpus[].") == []


def test_every_command_with_json_is_documented() -> None:
    commands = {**group.commands, "runs show": group.commands["runs"].commands["show"]}
    having = {
        "gputui --run" if name == "open" else f"gputui {name}"
        for name, command in commands.items()
        if any("--json" in param.opts for param in command.params)
    }
    assert [name for name in having if f"## {name}" not in TEXT] == []
