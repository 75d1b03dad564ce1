"""Options: those of several commands, which of the unnamed one go together, and what to write
instead.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from gputui.errors import UsageError, refuse

MOST_WORDS, MOST_BYTES = 10_000, 2**19
"""Of a program: what a message to an agent holds, with room for the rest of it."""
NO_SCRIPT = "what follows -- belongs to a script that --run names"
FOR_PROGRAMS = {"run": "for --exec -- CMD", "screen": "for --exec -- CMD"}
FOR_RUNS = {
    "program": "for --run; leave it out, or --exec",
    "screen": "for --run; the screen asks for what it needs",
}
FOR_STARTS = {
    "program": "for a cluster's workers, and --exec starts none: leave it out",
    "attach": "for a cluster that starts, and --attach takes one as it is; without --attach: HOSTS",
    "demo": "--demo simulates its cluster; write how large it is: --demo HOSTSxGPUS",
}
FOR_SCREENS = {
    "program": "for the screen; leave it out, or --exec",
    "run": "for the screen; leave it out, or leave out --run",
}
OWN_FILES = {"script": "a script writes its own files; this is for presets", **FOR_RUNS}

FREE_OPTIONS = ("gpus", "wait", "memory_free", "gpus_per_host")
AT_START = ("workers", "busy", "dashboard", "metrics", "notify", *FREE_OPTIONS)
"""Options of a cluster that starts; another one has its own."""
PROGRAM_OPTIONS = (*FREE_OPTIONS, "per", "cwd", "send", "tty", "pin", "detach")

WHERE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "name": ("start", FOR_STARTS),
    "workers": ("workers", FOR_STARTS),
    "busy": ("workers", FOR_STARTS),
    "dashboard": ("workers", FOR_STARTS),
    "metrics": ("start", FOR_STARTS),
    "notify": ("start", FOR_STARTS),
    "min_workers": ("run", FOR_RUNS),
    "as_json": ("headless", FOR_RUNS),
    "quiet": ("headless", FOR_RUNS),
    "trace": ("headless", FOR_RUNS),
    **dict.fromkeys(PROGRAM_OPTIONS, ("program", FOR_PROGRAMS)),
    **dict.fromkeys(FREE_OPTIONS, ("free", FOR_STARTS)),
    "parameters": (
        "preset",
        {
            "script": "for presets; a script's arguments: gputui --run {preset} -- {value}",
            **FOR_RUNS,
        },
    ),
    "backend": (
        "preset",
        {"script": "for presets; for CPU workers write gpus=none in HOSTS", **FOR_RUNS},
    ),
    "save": ("preset", OWN_FILES),
    "report": ("preset", OWN_FILES),
    "figure": ("preset", OWN_FILES),
    "seed": (
        "demo",
        {
            "preset": "the demo's; a preset's is a parameter: write -p seed={seed}",
            "script": "the demo's; for a script: gputui --run {preset} -- --seed {seed}",
            "program": "the demo's; a program's come after --: write -- CMD --seed {seed}",
            "screen": "for --demo HOSTSxGPUS",
        },
    ),
    "readonly": ("screen", FOR_SCREENS),
    "theme": ("screen", FOR_SCREENS),
    "only_ascii": ("screen", FOR_SCREENS),
    "demo": (
        "screen",
        dict.fromkeys(("run", "program"), "a screen, and runs nothing: leave it out, or that"),
    ),
}
"""Option → the kind of command that it works in, and elsewhere what to write, by kind."""


def several(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds several options, in this order."""
    return functools.partial(
        functools.reduce, lambda command, option: option(command), options[::-1]
    )


def _checked_span(_: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Return a span as it was written; raises UsageError."""
    from gputui.client.sources import parse_span

    parse_span("0" if text is None else text)
    return text


def _checked_size(_: click.Context, option: click.Parameter, text: str) -> str:
    """Return a size as it was written; raises UsageError."""
    from gputui.client.sources import parse_size

    parse_size(option.opts[0], text)
    return text


span_option = functools.partial(click.option, metavar="SPAN", callback=_checked_span)
gpu_options = several(
    click.option("-n", "--gpus", type=click.IntRange(1), help="Take so many that are free."),
    span_option("--wait", help="Stand in line for GPUs, at most so long: 2h."),
    click.option(
        "--memory-free",
        default="",
        metavar="SIZE",
        callback=_checked_size,
        help="Only GPUs with so much free.",
    ),
)
per_host_option = click.option(
    "--gpus-per-host", type=click.IntRange(1), metavar="N", help="Just so many of each host."
)
program_options = several(
    gpu_options,
    per_host_option,
    click.option(
        "--per",
        type=click.Choice(["gpu", "host", "once"]),
        help="One process a GPU, a host, or in all.  [default: host; once for one GPU]",
    ),
    click.option(
        "--cwd", metavar="PATH", help="Folder on the hosts.  [default: this one, or home]"
    ),
    click.option(
        "--send",
        metavar="FOLDER",
        type=click.Path(exists=True, file_okay=False),
        help="Start it in a copy of this folder on the hosts, without what git ignores.",
    ),
    click.option(
        "--pin", type=click.Choice(["index", "uuid"]), help="How CUDA_VISIBLE_DEVICES names GPUs."
    ),
)


def parse_program(words: list[str]) -> dict[str, Any]:
    """Return the options and the `arguments` of `exec` in the screen; raises UsageError."""

    @click.command("exec", context_settings={"allow_interspersed_args": False})
    @program_options
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command() -> None: ...

    command.add_help_option = False
    try:
        context = command.make_context("exec", words)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from error
    check_program(context.params, context.params["arguments"])
    written = written_options(context)
    given = {name: value for name, value in context.params.items() if name in written}
    return given | {"arguments": list(context.params["arguments"])}


def check_program(options: Mapping[str, Any], words: Sequence[str]) -> None:
    """Raise UsageError for options that do not go together, and words that no host would start."""
    from gputui.client.sources import check_per_host

    if "" in words[:1]:
        raise UsageError("--exec: '' is no program")
    try:
        size = len(json.dumps(words, ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        raise UsageError("--exec: an argument is no UTF-8, and cannot be sent") from error
    if len(words) > MOST_WORDS or size > MOST_BYTES:
        most = f"{MOST_WORDS:,} arguments of {MOST_BYTES // 2**10} KiB together"
        raise UsageError(f"{words[0]}: more than {most}: have it read them from a file")

    refuse(
        (
            options["send"] and options["cwd"],
            "--send brings the folder to start in: leave out --cwd",
        ),
        (
            options["per"] == "once" and options["gpus_per_host"],
            "--per once: all GPUs are of one host: leave out --gpus-per-host",
        ),
    )
    check_per_host(options["gpus"] or 1, options["gpus_per_host"])


def refuse_elsewhere(given: Mapping[str, str], options: Mapping[str, Any]) -> None:
    """Raise UsageError for options that would do nothing; `given` has each as it is written."""
    if (options["attach"] or "").startswith("-"):
        raise UsageError(f"--attach: write the cluster's NAME behind it, not {options['attach']}")
    source = "demo" if options["demo"] is not None else "attach" if options["attach"] else "start"
    workers = ["workers", "free"] if source == "start" else []
    if options["is_program"]:
        kinds = ["program", "free", source, "headless"]
    elif options["preset"] is None:
        kinds = [source, *workers, "screen"]
    else:
        is_script = options["preset"].endswith(".py")
        kinds = ["script" if is_script else "preset", source, *workers, "run", "headless"]
    refused: dict[str, list[str]] = {}
    for name, written in given.items():
        where, instead = WHERE.get(name, ("", {}))
        if where and where not in kinds:
            hint = next(text for kind, text in instead.items() if kind in kinds)
            refused.setdefault(hint, []).append(written)
    if refused:
        typed = (options["parameters"] or ("",))[0].rpartition("=")[2]
        values = {**options, "value": typed}
        raise UsageError(
            "\n".join(f"{', '.join(r)}: {hint.format_map(values)}" for hint, r in refused.items())
        )
    refuse(
        (options["attach"] and options["hosts"], "give HOSTS or --attach NAME, not both"),
        (
            options["demo"] is not None and (options["attach"] or options["hosts"]),
            "--demo simulates its hosts: give neither HOSTS nor --attach",
        ),
    )


def written_options(ctx: click.Context) -> dict[str, str]:
    """Return the options on the command line: name → as it is written."""
    return {
        param.name: param.opts[0]
        for param in ctx.command.params
        if param.name
        and isinstance(param, click.Option)
        and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }
