"""`presets`, `runs`, `help` and `--spec`: what can be run, what was run, and the documentation."""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from gputui.errors import PresetError, UsageError
from gputui.model.hosts import OPTIONS
from gputui.model.plain_text import MISSING, aligned, cut, safe, safe_lines
from gputui.model.snapshot import RunState
from gputui.presets import Preset, get, names
from gputui.presets.definition import json_text
from gputui.presets.registry import write_new
from gputui.protocol.starter import Settings
from gputui.runs import RunRecord, find, recorded, text
from gputui.runs.output import output_file, write_over
from gputui.runs.records import as_object, status_of, telemetry_of
from gputui.runs.telemetry import chrome_trace
from gputui.runs.text import device_rows, differences, gib, usage_facts
from gputui.settings import BOUNDS, KEYS, WORKER_KEYS
from gputui.version import __version__

WIDTH = 80
PAGE = 100
"""The greatest width of a page of the documentation."""
MORE = """
gputui presets NAME             its parameters, and what comes of it
gputui presets new NAME         write NAME.py to begin with, and its test
gputui --run NAME               run it
gputui --run mine.py            run a script of your own; its Client() finds the cluster
gputui --run mine.py:PRESET     run a preset of your own"""


def presets(words: tuple[str, ...], as_json: bool) -> None:
    """Print all presets, or one with its parameters, or write a new one.

    Raises PresetError for an unknown name, or one that cannot be written. Presets that cannot be
    imported are named on stderr.
    """
    if words[:1] == ("new",):
        _new(words[1:], as_json)
        return
    chosen = words[1:] if words[:1] == ("show",) else words
    if len(chosen) > 1 or (words and not chosen):
        raise UsageError("gputui presets NAME shows one preset")
    found = [get(chosen[0])] if chosen else importable()
    if as_json:
        print(json.dumps([preset_object(preset) for preset in found], indent=1))
    elif chosen:
        print(described(found[0], chosen[0] + ":PRESET" * chosen[0].endswith(".py")))
    else:
        width = max(len(preset.name) for preset in found)
        print("\n".join(_hanging(preset.name, width, preset.summary) for preset in found))
        print(MORE, file=sys.stderr)


def importable() -> list[Preset]:
    """Return all presets; those that cannot be imported are named on stderr."""
    found = []
    for name in names():
        try:
            found.append(get(name))
        except PresetError as error:
            print(f"gputui: {safe_lines(str(error))}", file=sys.stderr)
    return found


def _new(words: tuple[str, ...], as_json: bool) -> None:
    if len(words) != 1:
        raise UsageError("gputui presets new NAME writes NAME.py and test_NAME.py")
    preset, test = write_new(words[0], Path())
    if as_json:
        print(json.dumps({"preset": str(preset), "test": str(test)}))
    else:
        print(preset, test, sep="\n")
        print(f"\ngputui --run ./{preset}:PRESET\npython -m pytest {test}", file=sys.stderr)


def preset_object(preset: Preset) -> dict[str, Any]:
    """Describe a preset for `presets --json`."""
    return {
        "name": preset.name,
        "summary": preset.summary,
        "parameters": [
            {**asdict(parameter), "type": parameter.type.__name__}
            for parameter in preset.parameters
        ],
        "arrays": list(preset.arrays),
        "draws": preset.draws,
        "requires": [asdict(library) for library in preset.requires],
    }


def described(preset: Preset, name: str) -> str:
    """Return a preset, called `name` on the command line, with its parameters and needs."""
    written = [f"  -p {each.name}={_written(each.default)}" for each in preset.parameters]
    width = max(map(len, written), default=0)
    lines = [_hanging(f"{preset.name}:", len(preset.name), preset.summary), ""]
    for shown, parameter in zip(written, preset.parameters, strict=True):
        on_cpu = parameter.cpu_default
        takes = parameter.bounds + ("" if on_cpu is None else f"; {_written(on_cpu)} on CPUs")
        lines += [_hanging(shown, width, parameter.help), _hanging("", width, takes)]
    lines += [""] * bool(written)
    for library in preset.requires:
        where = "" if len(library.backends) > 1 else f" of {library.backends[0]}"
        needs = f"needs {library.module} on every worker{where}: {library.install}"
        lines.append(textwrap.fill(needs, WIDTH, subsequent_indent="  "))
    lines.append(_hanging("gives", 5, preset.offers))
    return "\n".join([*lines, f"gputui --run {name}"])


def _hanging(left: str, width: int, right: str) -> str:
    """Return a text wrapped with a hanging indent after `left`."""
    return textwrap.fill(
        right, WIDTH, initial_indent=left.ljust(width + 2), subsequent_indent=" " * (width + 2)
    )


def _written(value: object) -> str:
    """Return a value as it may be typed, an integer with its thousands apart."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:_}" if isinstance(value, int) else str(value)


SAID_LINES = 10
"""Of how a worker ended, and what it printed last."""
SHOWN = 30
"""Runs that are listed as text; `--json` has them all."""


def list_runs(as_json: bool) -> None:
    """Print the recorded runs, the newest first."""
    found = recorded()
    if as_json:
        print(json_text([as_object(record) for record in found], indent=1))
    elif found:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(line[:columns] for line in run_table(found[:SHOWN])))
    else:
        print("no run yet; gputui --run svd makes one", file=sys.stderr)
    if len(found) > SHOWN and not as_json:
        print(f"… and {len(found) - SHOWN:,} older; --json has them all", file=sys.stderr)


def run_table(found: tuple[RunRecord, ...]) -> list[str]:
    """Return runs, a line each under a head."""
    rows = [
        [
            record.id,
            record.state,
            _took(record),
            gib(record.usage.device_memory_peak_bytes if record.usage else None),
            record.words.partition("\n")[0],
        ]
        for record in found
    ]
    heads = ["run", "state    ", "     took", "   memory", "result"]
    return aligned([heads, *rows], right=[2, 3])


def show_run(id_: str, as_json: bool, trace: str | None = None) -> None:
    """Print one run, or write its trace.

    Raises UsageError when the id names none, or several, and where the telemetry of the run cannot
    be read; RunError where the trace cannot be written.
    """
    record = find(id_)
    if trace:
        file = output_file("--trace", trace)
        write_over("--trace", file, chrome_trace(status_of(record), telemetry_of(record)))
    elif as_json:
        print(json_text(as_object(record), indent=1))
    else:
        print("\n\n".join(parts(record)))


def diff_runs(first: str, second: str, as_json: bool) -> None:
    """Print two runs side by side, what differs first; raises UsageError for an unknown id."""
    found = differences(*(status_of(find(each)) for each in (first, second)))
    if as_json:
        keys = ("name", "first", "second", "differs")
        kept = [dict(zip(keys, (*each, each[1] != each[2]), strict=True)) for each in found]
        print(json_text(kept, indent=1))
        return
    rows = [[cut(text, WIDTH) for text in each] for each in found if each[1] != each[2]]
    print(safe_lines("\n".join(aligned(rows))))
    if alike := [name for name, one, other in found if one == other]:
        print(f"\nalike: {safe(', '.join(alike))}")


def parts(record: RunRecord) -> list[str]:
    """Return the parts of a run's page: the facts, its result, its figure."""
    kept = record.result
    found = [text({key: value for key, value in facts(record).items() if value != ""})]
    if usage := usage_facts(record.usage):
        rows = device_rows(record.usage)
        found.append(text(usage | ({"each": rows} if rows else {})))
    if result := kept.get("result"):
        found.append(text(result, kept.get("units")))
    if kept.get("figure"):
        from gputui.tui.rendering.figures import figure_text

        found.append(figure_text(kept["figure"]))
    return [safe_lines(part) for part in found]


def facts(record: RunRecord) -> dict[str, Any]:
    """Return a run's fields other than its result, as text; "" if missing."""
    kept, failure = record.result, record.failure
    said = [failure.worker, *failure.worker_log[-SAID_LINES:]] if failure else []
    stages = [f"{stage} {elapsed_s:.1f} s" for stage, elapsed_s in record.timings.items()]
    return {
        "run": record.id,
        "preset": record.preset,
        "parameters": _pairs(record.parameters),
        "state": str(record.state),
        "why": record.summary if record.state is RunState.LOST else "",
        "machine": record.elsewhere,
        "error": record.error.replace("\n", "\n    "),
        "its worker": "\n".join(said) if len(said) > 1 else "",
        "hosts": record.hosts or "this machine",
        "failed hosts": ", ".join(each.get("host", "") for each in kept.get("failed_hosts", ())),
        "workers": ", ".join(record.workers),
        "backend": kept.get("backend", record.backend),
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started_at)),
        "took": _took(record) + (f": {', '.join(stages)}" if stages else ""),
        "restarts": str(record.restarts or ""),
        "versions": _pairs({"gputui": record.version} | kept.get("versions", {}), " "),
        "saved": "\n".join(record.saved),
        "log": str(record.log) if record.log.exists() else "",
    }


def _pairs(mapping: Mapping[str, Any], between: str = "=") -> str:
    return ", ".join(f"{key}{between}{value}" for key, value in mapping.items() if value != [])


def _took(record: RunRecord) -> str:
    return MISSING if record.elapsed_s is None else f"{record.elapsed_s:,.1f} s"


MORE_HELP = """
gputui help TOPIC               one of them; gputui COMMAND --help its options
gputui --demo 4x8               the screen, on simulated GPUs
gputui --run svd                a first result, on this machine
gputui hosts.txt                the screen, on the hosts of a file: gputui help hosts"""
FOLDER = Path(__file__).parents[1] / "help"


def topic_files() -> dict[str, Path]:
    """Return each topic with its file."""
    found = {path.stem: path for path in FOLDER.glob("*.md")}
    return dict(sorted({**found, "changes": FOLDER.parent / "CHANGELOG.md"}.items()))


def topics() -> dict[str, str]:
    """Return each topic with its title."""
    return {
        name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        for name, path in topic_files().items()
    }


def show_help(topic: str | None) -> None:
    """Print a topic, or the list of topics; raises UsageError for one that does not exist."""
    found = topics()
    if topic is None:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {title}" for name, title in found.items()))
        print(MORE_HELP, file=sys.stderr)
        return
    if topic not in found:
        near = get_close_matches(topic.lower(), found, 1, 0.6)
        near = near or [name for name, title in found.items() if topic.lower() in title.lower()]
        hint = f"did you mean {near[0]}?" if near else f"topics are {', '.join(found)}"
        raise UsageError(f"no help topic {topic!r}; {hint}")
    text = topic_files()[topic].read_text(encoding="utf-8")
    if sys.stdout.isatty():
        _draw(text)
    else:
        print(text, end="")


def _draw(text: str) -> None:
    """Draw Markdown on this terminal, through a pager where it is longer than a page."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.width = min(console.width, PAGE)
    with console.capture() as captured:
        console.print(Markdown(text))
    drawn = captured.get()
    if drawn.count("\n") < console.height:
        click.echo(drawn, nl=False)
    else:
        click.echo_via_pager(drawn)


def print_specification(group: click.Group) -> None:
    """Print commands, presets, settings and host-file options as one JSON object, for programs."""
    settings = [
        {
            "key": key,
            "takes": BOUNDS[field][0] if field in BOUNDS else kind.__name__,
            "default": getattr(Settings(), field),
        }
        for key, (field, kind) in KEYS.items()
    ]
    settings += [
        {"key": key, "takes": takes, "default": None} for key, (takes, _) in WORKER_KEYS.items()
    ]
    found = {
        "version": __version__,
        "commands": list(_commands(group, click.Context(group, info_name="gputui"))),
        "presets": [preset_object(preset) for preset in importable()],
        "settings": settings,
        "host_options": [*OPTIONS, "env.X"],
    }
    print(json.dumps(found, indent=1))


def _commands(group: click.Group, context: click.Context) -> Iterator[dict[str, Any]]:
    """Yield every command, the unnamed one as `gputui`."""
    for name, command in group.commands.items():
        own = command.context_class(command, parent=context, info_name=name)
        params = command.params
        yield {
            "name": own.command_path,
            "help": command.help or "",
            "arguments": [_parameter(p, own) for p in params if p.param_type_name == "argument"],
            "options": [_parameter(p, own) for p in params if p.param_type_name == "option"],
        }
        if isinstance(command, click.Group):
            yield from _commands(command, own)


def _parameter(param: click.Parameter, context: click.Context) -> dict[str, Any]:
    """Describe an argument or an option."""
    is_flag = getattr(param, "is_flag", False)
    return {
        "names": list(param.opts),
        "value": "" if is_flag else param.make_metavar(context),
        "choices": list(getattr(param.type, "choices", ())),
        "required": param.required,
        "repeated": param.multiple or param.nargs < 0,
        "help": getattr(param, "help", None) or "",
    }
