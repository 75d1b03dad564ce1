"""README.md and `gputui help` hold: commands, flags, settings, options, keys and paths in them."""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from gputui.cli.commands import gputui
from gputui.cli.listing import FOLDER, topic_files, topics
from gputui.errors import ExitCode, UsageError
from gputui.model.hosts import OPTIONS, parse_hosts
from gputui.presets import names
from gputui.settings import KEYS, WORKER_KEYS, Settings, parse_settings
from gputui.tui.commands import key_name
from gputui.tui.commands.changes import COMMANDS as CHANGES
from tests.tui.test_commands import registry_of_all

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *topic_files().values()]
TEXTS = {path: path.read_text(encoding="utf-8") for path in FILES}
KNOWN = gputui.commands
ALL = "\n".join(TEXTS.values())
OTHERS = {"--dist", "--generate-hashes", "--user"}
"""Flags of pytest, pip-compile and others."""


def fenced(text: str, kind: str = "") -> list[str]:
    """Return the blocks of a language."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    return [block for language, block in blocks if language == kind]


def inline(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def typed(text: str) -> Iterator[list[str]]:
    """Yield each command line of gputui, without a comment."""
    for line in [*"\n".join(fenced(text)).splitlines(), *inline(text)]:
        if re.match(r"gputui( |$)", line):
            yield shlex.split(re.sub(r"[\[\]]", "", line), comments=True)[1:]


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} ")
        yield before + name, command


def flags() -> set[str]:
    found = {
        option
        for _, command in commands(gputui)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    return found | {"--help", "--version"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_command_line_in_it_is_one_that_gputui_takes(path: Path) -> None:
    refused = []
    for words in typed(TEXTS[path]):
        words = words[: words.index("--")] if "--" in words else words
        words = [word for word in words if word not in ("-h", "--help")]
        name, rest = (words[0], words[1:]) if words[:1] and words[0] in KNOWN else ("open", words)
        if words not in (["COMMAND"], ["--version"], ["--spec"]):
            try:
                KNOWN[name].make_context(name, [*rest], obj=())
            except click.UsageError as error:
                refused.append((words, error.message))
    assert refused == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_flag_in_it_exists(path: Path) -> None:
    said = {
        word
        for line in inline(TEXTS[path])
        if not line.startswith(
            ("pip ", "pytest", "python", "sudo", "mypy", "salloc ", "squeue ", "srun ")
        )
        for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line)
    }
    assert said - OTHERS <= flags()


def test_every_command_and_flag_is_in_the_documentation() -> None:
    missing = [flag for flag in flags() if not re.search(rf"(?<![\w-]){flag}(?![\w-])", ALL)]
    missing += [
        name for name, command in commands(gputui) if not command.hidden and name not in ALL
    ]
    assert missing == []


def test_the_settings_are_those_of_the_program_with_their_defaults() -> None:
    (block,) = fenced(TEXTS[FOLDER / "settings.md"], "yaml")
    tree = yaml.safe_load(block)["gputui"]
    written = {
        f"{key}.{inner}" if isinstance(value, dict) else key
        for key, value in tree.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert written == {*KEYS, *WORKER_KEYS}
    assert parse_settings(tree) == Settings()


def test_an_unknown_setting_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(UsageError) as refused:
        parse_settings({"leese": 30})
    assert all(name in str(refused.value) for name in (*KEYS, *WORKER_KEYS))


def test_the_hosts_files_in_it_are_read_and_every_option_is_described() -> None:
    samples = [block for block in fenced(ALL) if block.startswith("*  python=")]
    assert [len(parse_hosts(sample)) > 15 for sample in samples] == [True, True]
    described = re.findall(r"^\| `([a-z][a-z-]*|env\.X)`", TEXTS[FOLDER / "hosts.md"], re.M)
    assert set(described) == {*OPTIONS, "env.X"}


def test_every_key_of_the_screen_is_described_and_no_other() -> None:
    described = {
        key
        for row in re.findall(r"^\| (`[^|]*`)", TEXTS[FOLDER / "screen.md"], re.M)
        for key in inline(row)
    }
    pressed = {key_name(command.key) for command in (*registry_of_all(), *CHANGES) if command.key}
    described = {key.replace("ctrl+", "^") for key in described} | {"?", ":", "^p"}
    assert described - {"enter"} == pressed


def test_every_preset_is_listed() -> None:
    listed = set(inline(TEXTS[FOLDER / "presets.md"]))
    assert set(names()) <= listed


def test_every_exit_code_is_listed() -> None:
    rows = re.findall(r"^\| (\d+) \|", TEXTS[FOLDER / "runs.md"], re.M)
    assert [int(row) for row in rows] == [int(code) for code in ExitCode]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_path_in_it_exists(path: Path) -> None:
    paths = re.findall(r"(?<![\w/.])((?:gputui|tests|screenshots)/[\w./-]*\w)", TEXTS[path])
    assert [each for each in paths if not (ROOT / each).exists()] == []
    modules = re.findall(r"\btests\.[a-z.]*[a-z]", TEXTS[path])
    files = {Path(*module.split(".")) for module in modules}
    gone = [
        each
        for each in files
        if not (ROOT / each).is_dir() and not (ROOT / each.with_suffix(".py")).exists()
    ]
    assert gone == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_python_in_it_compiles_and_imports_what_exists(path: Path) -> None:
    for block in fenced(TEXTS[path], "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "gputui":
                module = importlib.import_module(node.module)
                assert all(hasattr(module, each.name) or _module(each.name) for each in node.names)


def _module(name: str) -> bool:
    return bool(importlib.import_module(f"gputui.{name}"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_help_topic_that_it_names_exists(path: Path) -> None:
    assert set(re.findall(r"gputui help ([a-z-]+)", TEXTS[path])) <= {*topics()}


def test_the_readme_is_short_lists_every_topic_and_links_absolutely() -> None:
    readme = TEXTS[ROOT / "README.md"]
    assert len(readme.splitlines()) <= 300
    listed = re.findall(r"^\| \[([a-z-]+)\]", readme, re.M)
    assert sorted(listed) == sorted(topics())
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert [link for link in links if not link.startswith("https://")] == []
    for link in links:
        if "/main/" in link:
            assert (ROOT / link.partition("/main/")[2]).exists(), link
