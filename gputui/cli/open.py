"""The unnamed command: the screen on a cluster, or `--run` without one."""

import re
import sys
from pathlib import Path
from typing import Any

from gputui.cli.arguments import HostsInput, read_hosts
from gputui.errors import PresetError, UsageError


def run_headless(script_arguments: tuple[str, ...], **options: Any) -> int:
    """Compute without a screen; every wrong word is found before anything starts."""
    from gputui.presets import get, parse_parameters

    _refuse_together(options)
    name: str = options["preset"]
    given = _pairs(options["parameters"])
    if name.endswith(".py"):
        raise UsageError(
            f"{name}: name the preset in it, such as {name}:PRESET; a script of your own connects "
            "with gputui.connect()"
        )
    if script_arguments:
        raise UsageError("what follows -- belongs to a script that --run names")
    preset = get(name)
    parameters = parse_parameters(preset, given)
    hosts = None if options["attach"] else read_hosts(options["hosts"])

    from gputui.cli.headless import Work, compute
    from gputui.cli.interrupts import run_until_interrupted

    work = Work(
        preset=preset,
        preset_name=name,
        parameters=parameters,
        given=given,
        backend=options["backend"],
        hosts=options["attach"] or options["hosts"] or "",
        workers=options["workers"],
        min_workers=options["min_workers"],
        output=_output(options),
    )
    run_until_interrupted(compute(work, _hold(hosts, options)))
    return 0


def _refuse_together(options: dict[str, Any]) -> None:
    """Raise UsageError for options that do not go together."""
    if options["attach"] and options["hosts"]:
        raise UsageError("give HOSTS or --attach NAME, not both")
    if options["demo"]:
        raise UsageError("--demo is a screen; it computes nothing")


def _pairs(words: tuple[str, ...]) -> dict[str, str]:
    """Return `-p key=value` words as a mapping; raises PresetError."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise PresetError(f"-p {word}: write key=value")
        if key in pairs:
            raise PresetError(f"-p {word}: {key} is given twice")
        pairs[key] = value
    return pairs


def _output(options: dict[str, Any]) -> Any:
    from gputui.cli.headless import Output

    def path(name: str) -> Path | None:
        return Path(options[name]) if options[name] else None

    return Output(
        as_json=options["as_json"],
        quiet=options["quiet"],
        save=path("save"),
        report=path("report"),
        figure=path("figure"),
    )


def _hold(hosts: HostsInput | None, options: dict[str, Any]) -> Any:
    """Return what takes hold of the cluster that the options mean."""
    from gputui.cli.headless import attached_to
    from gputui.cli.starting import head_configuration, started

    if hosts is None:
        return lambda: attached_to(options["attach"])
    configuration = head_configuration(hosts, options, stays=False, fallback=_fallback(options))
    return lambda: started(configuration)


def _fallback(options: dict[str, Any]) -> bool:
    """Whether CPU workers do where there is no GPU: bare `gputui`, or the CPU asked for."""
    return options["hosts"] is None or options["backend"] == "numpy"


def open_screen(**options: Any) -> int:
    """Open the screen: on a demo, on a cluster that runs, or on one that it starts."""
    _need_terminal()
    from gputui.cli import screen

    chosen = screen.Look(options["theme"], options["only_ascii"], options["readonly"])
    if options["demo"]:
        if not re.fullmatch(r"[0-9]+x[0-9]+", options["demo"]):
            raise UsageError(f"--demo {options['demo']}: write HOSTSxGPUS, such as 125x8")
        return screen.show_demo(options["demo"], options["seed"], chosen)
    if options["attach"]:
        return screen.show_running(options["attach"], chosen)
    return screen.show_started(read_hosts(options["hosts"]), options, chosen)


def attach_screen(name: str | None, readonly: bool, theme: str | None, only_ascii: bool) -> int:
    """Open the screen on a cluster that runs."""
    _need_terminal()
    from gputui.cli import screen

    return screen.show_running(name, screen.Look(theme, only_ascii, readonly))


def _need_terminal() -> None:
    """Raise UsageError where no screen can be shown."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the screen needs a terminal; without one: gputui [HOSTS] --run PRESET, or gputui up"
        )
