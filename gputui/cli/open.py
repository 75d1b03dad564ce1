"""The unnamed command: the screen on a cluster, or `--run` without one."""

import os
import re
import shlex
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.cli.arguments import read_hosts
from gputui.cli.interrupts import interrupt_on_signals, run_until_interrupted
from gputui.errors import GputuiError, PresetError, UsageError
from gputui.process.garbage import look_rarely

if TYPE_CHECKING:
    from gputui.demo import Shape
    from gputui.runs.lifecycle import OpenCluster
    from gputui.runs.request import RunRequest

NOT_BOTH = "give HOSTS or --attach NAME, not both"

OF_RUNS: Mapping[str, tuple[str, Any]] = {
    "parameters": ("-p", ()),
    "min_workers": ("--min-workers", 1),
    "backend": ("--backend", "auto"),
    "as_json": ("--json", False),
    "quiet": ("--quiet", False),
    "save": ("--save", None),
    "report": ("--report", None),
    "figure": ("--figure", None),
}
"""Options that only a run takes: each as it is written, and its value where it is not given."""


def run_headless(script_arguments: tuple[str, ...], **options: Any) -> int:
    """Compute without a screen; every wrong word is found before anything starts."""
    interrupt_on_signals()
    look_rarely()  # imports leave little behind that is worth looking for
    if options["as_json"]:
        _keep_stdout()
    try:
        running = _prepared(script_arguments, options)
    except GputuiError as error:
        if options["as_json"]:
            from gputui.runs.lifecycle import print_failure

            print_failure(_request(options, {}, ()), error)
        raise
    try:
        return run_until_interrupted(running)
    finally:
        interrupt_on_signals()
        remove_old_runs()


def _keep_stdout() -> None:
    """Keep stdout for one object: what else writes to descriptor 1, such as a process that a preset
    starts, writes to stderr."""
    stdout = sys.__stdout__
    if stdout is not None and sys.stdout is stdout:
        stdout.flush()
        sys.stdout = os.fdopen(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors)
        os.dup2(2, 1)


def remove_old_runs() -> None:
    """Remove the oldest records, now that no thread imports what the settings are read with.

    The newest one stays until the next run, whatever is set. Nothing here changes how a run ended.
    """
    from gputui import runs
    from gputui.settings import load_settings

    try:
        runs.prune(max(1, load_settings().runs_kept))
    except (UsageError, OSError) as error:
        print(f"gputui: no earlier run was removed: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        pass


def _prepared(
    script_arguments: tuple[str, ...], options: dict[str, Any]
) -> Coroutine[object, object, int]:
    """Prepare the run that the options ask for; raises UsageError."""
    _refuse_together(options)
    given = _pairs(options["parameters"])
    if options["preset"].endswith(".py"):
        return _script(script_arguments, given, options)
    if script_arguments:
        raise UsageError(
            "what follows -- belongs to a script that --run names; "
            f"{options['preset']} is a preset: write -p key=value"
        )
    return _preset(given, options)


def _preset(given: dict[str, str], options: dict[str, Any]) -> Coroutine[object, object, int]:
    from gputui.presets import get, parse

    preset = get(options["preset"])
    parameters = parse(preset, given)
    parameters.refuse_mistakes(options["backend"])

    from gputui.cli.recorded_runs import drawn
    from gputui.runs.output import checked, refuse_undeclared

    refuse_undeclared(preset, options["preset"], options["save"], options["figure"])
    output = checked(options["save"], options["report"], options["figure"], drawn)
    open_cluster = _open_cluster(options)

    from gputui.runs.preset_run import PresetRun, run_preset

    request = _request(options, parameters.values, tuple(given.items()))
    return run_preset(PresetRun(parameters, output), request, open_cluster)


def _script(
    arguments: tuple[str, ...], given: dict[str, str], options: dict[str, Any]
) -> Coroutine[object, object, int]:
    path = Path(options["preset"]).expanduser()
    for option in ("save", "report", "figure"):
        if options[option]:
            raise UsageError(f"--{option}: a script writes its own files; this is for presets")
    if given:
        raise UsageError(
            f"-p is for presets; what stands behind -- is the script's: "
            f"gputui --run {path} -- {next(iter(given.values()))}"
        )
    if not path.is_file():
        raise UsageError(f"--run {path}: no such file")
    if _is_preset(path):
        raise UsageError(f"--run {path}: is a preset, not a script: write --run {path}:PRESET")
    open_cluster = _open_cluster(options)

    from gputui.runs.script_run import run_script

    typed = (("arguments", shlex.join(arguments)),) if arguments else ()
    return run_script(
        path, arguments, _request(options, {"arguments": list(arguments)}, typed), open_cluster
    )


def _is_preset(path: Path) -> bool:
    """Whether a file, run as a script, would do nothing but define a preset."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--run {path}: {error.strerror}") from error
    return bool(re.search(r"^PRESET\b.*=\s*Preset\(", text, re.M)) and "__main__" not in text


def _request(
    options: dict[str, Any], parameters: Mapping[str, Any], given: tuple[tuple[str, str], ...]
) -> "RunRequest":
    from gputui.runs.request import RunRequest

    running = f"cluster {options['attach']}" if options["attach"] else ""
    return RunRequest(
        name=options["preset"],
        parameters=parameters,
        given=given,
        backend=options["backend"],
        hosts=running or options["hosts"] or "",
        workers=options["workers"],
        min_workers=options["min_workers"],
        as_json=options["as_json"],
        quiet=options["quiet"],
    )


def _refuse_together(options: dict[str, Any]) -> None:
    """Raise UsageError for options that do not go together."""
    if options["attach"] and options["hosts"]:
        raise UsageError(NOT_BOTH)
    if options["demo"] is not None:
        raise UsageError("--demo is a screen; it computes nothing")
    if options["figure"] and options["as_json"]:
        from gputui.runs.output import TERMINAL

        if options["figure"] == TERMINAL:
            raise UsageError("--figure - draws where --json prints one object: give it a file")
    if options["workers"] and options["workers"] < options["min_workers"]:
        raise UsageError(
            f"--min-workers {options['min_workers']} is more than --workers {options['workers']}"
        )
    if re.fullmatch(r"\w+=\S*", options["hosts"] or ""):
        raise UsageError(f"{options['hosts']}: a parameter is written -p {options['hosts']}")


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


def _open_cluster(options: dict[str, Any]) -> "OpenCluster":
    """Return a function that opens the cluster of these options."""
    name, given = options["attach"], options["hosts"]
    if name:
        from gputui.cli.clusters import chosen_cluster
        from gputui.cli.elsewhere import remote_head
        from gputui.cli.starting import attached

        head = remote_head(name) or chosen_cluster(name).socket
        return lambda: attached(head)
    hosts = read_hosts(given)

    from gputui.cli.starting import head_configuration, started

    fallback = given is None or options["backend"] == "numpy"
    configuration = head_configuration(hosts, options, stays=False, fallback=fallback)
    return lambda: started(configuration)


def open_screen(**options: Any) -> int:
    """Open the screen: on a demo, on a cluster that runs, or on one that it starts."""
    _refuse_without_run(options)
    shape = _simulated(options)
    _need_terminal()
    from gputui.cli import showing

    chosen = showing.Look(options["theme"], options["only_ascii"], options["readonly"])
    if shape:
        return showing.show_demo(shape, options["seed"], chosen)
    if options["attach"]:
        return showing.show_running(options["attach"], chosen)
    return showing.show_started(read_hosts(options["hosts"]), options, chosen)


def _refuse_without_run(options: dict[str, Any]) -> None:
    """Raise UsageError for options that a screen would do nothing about."""
    if options["attach"] and options["hosts"]:
        raise UsageError(NOT_BOTH)
    given = [written for name, (written, default) in OF_RUNS.items() if options[name] != default]
    if given:
        raise UsageError(f"{', '.join(given)}: for --run; the screen asks for what it needs")


def _simulated(options: dict[str, Any]) -> "Shape | None":
    """Return the shape of a simulated cluster, None without `--demo`; raises UsageError."""
    if options["demo"] is None:
        return None
    if options["attach"] or options["hosts"]:
        raise UsageError("--demo simulates its hosts: give neither HOSTS nor --attach")
    from gputui.demo import Shape

    return Shape.parse(options["demo"])


def attach_screen(name: str | None, readonly: bool, theme: str | None, only_ascii: bool) -> int:
    """Open the screen on a cluster that runs."""
    _need_terminal()
    from gputui.cli import showing

    return showing.show_running(name, showing.Look(theme, only_ascii, readonly))


def _need_terminal() -> None:
    """Raise UsageError where no screen can be shown."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the screen needs a terminal; without one: gputui [HOSTS] --run PRESET, or gputui up"
        )
