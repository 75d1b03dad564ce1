"""The unnamed command without a screen: `--run` a preset or a script, or `--exec` a program."""

import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.cli.options import NO_SCRIPT, PROGRAM_OPTIONS, check_program, refuse_elsewhere
from gputui.cli.terminal import interrupt_on_signals, run_until_interrupted
from gputui.client.sources import (
    parse_size,
    parse_span,
    read_hosts,
    wanted_gpus,
)
from gputui.errors import GputuiError, PresetError, UsageError, refuse

if TYPE_CHECKING:
    from gputui.runs.run import OpenCluster, RunRequest

Prepared = Callable[[], Coroutine[object, object, int | None]]
"""Computes what the options ask for, and returns the exit code, None for 0."""


def run_headless(
    script_arguments: tuple[str, ...], given: Mapping[str, str], options: dict[str, Any]
) -> int | None:
    """Compute without a screen; every wrong word is found before a cluster starts."""
    interrupt_on_signals()
    stdout = sys.__stdout__
    if options["as_json"] and stdout is not None and sys.stdout is stdout:
        # What else writes to descriptor 1, such as a process that a preset starts, writes to
        # stderr: stdout is for one object.
        stdout.flush()
        sys.stdout = os.fdopen(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors)
        os.dup2(2, 1)
    try:
        prepared = prepare(script_arguments, given, options)
    except GputuiError as error:
        if options["as_json"]:
            from gputui.protocol.programs import run_name
            from gputui.runs.run import print_failure

            if options["is_program"] and script_arguments:
                options["preset"] = run_name(script_arguments[0])
            print_failure(_request(options, {}), error)
        raise
    try:
        return run_until_interrupted(prepared())
    finally:
        interrupt_on_signals()
        remove_old_runs()


def remove_old_runs() -> None:
    """Remove the oldest records, now that no thread imports what the settings are read with.

    The newest one stays until the next run, whatever is set. Nothing here changes how a run ended.
    """
    from gputui import runs
    from gputui.settings import load_settings

    try:
        runs.prune(max(1, load_settings().runs_kept))
    except (UsageError, ValueError, OSError) as error:
        print(f"gputui: no earlier run was removed: {error}", file=sys.stderr)


def prepare(
    script_arguments: tuple[str, ...], given: Mapping[str, str], options: dict[str, Any]
) -> "Prepared":
    """Prepare the run that the options ask for; raises UsageError."""
    refuse_elsewhere(given, options)
    if not options["is_program"] and re.fullmatch(r"\w+=\S*", options["hosts"] or ""):
        raise UsageError(f"{options['hosts']}: a parameter is written -p {options['hosts']}")
    if not options["attach"] and options["hosts"] != "-":  # which is read when all else is right
        options["read"] = read_hosts(options["hosts"])
    if options["trace"]:
        from gputui.runs.output import output_file

        options["trace"] = output_file("--trace", options["trace"])
    if options["is_program"]:
        return _program(script_arguments, given, options)
    refuse(
        (
            options["figure"] == "-" and options["as_json"],
            "--figure - draws where --json prints one object: give it a file",
        ),
        (options["workers"] == 0, "--workers 0 only watches: a run needs a worker at least"),
        (
            options["workers"] is not None and options["workers"] < options["min_workers"],
            f"--min-workers {options['min_workers']} is more than --workers {options['workers']}",
        ),
    )
    if options["preset"].endswith(".py"):
        return _script(script_arguments, options)
    if script_arguments:
        raise UsageError(f"{NO_SCRIPT}; for a preset write -p key=value")
    return _preset(options)


def _preset(options: dict[str, Any]) -> "Prepared":
    from gputui.presets import get, parse

    preset = get(options["preset"])
    pairs: dict[str, str] = {}
    for word in options["parameters"]:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise PresetError(f"-p {word}: write key=value")
        if key in pairs:
            raise PresetError(f"-p {word}: {key} is given twice")
        pairs[key] = value
    parameters = parse(preset, pairs)
    parameters.refuse_mistakes(options["backend"])

    from gputui.runs.output import checked, refuse_undeclared

    refuse_undeclared(preset, options["preset"], options["save"], options["figure"])
    output = checked(options["save"], options["report"], options["figure"], _drawn)
    open_cluster = _open_cluster(options)

    from gputui.runs.preset_run import run_preset

    return partial(
        run_preset, parameters, output, _request(options, parameters.values), open_cluster
    )


def _drawn(figure: Any) -> str:
    from gputui.tui.rendering.figures import figure_text  # once there is one

    return figure_text(figure)


def _script(arguments: tuple[str, ...], options: dict[str, Any]) -> "Prepared":
    path = Path(options["preset"]).expanduser()
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--run {path}: {error.strerror}") from error
    # Run as a script, it would do nothing but define a preset.
    if re.search(r"^PRESET\b.*=\s*Preset\(", text, re.M) and "__main__" not in text:
        raise UsageError(f"--run {path}: is a preset, not a script: write --run {path}:PRESET")
    open_cluster = _open_cluster(options)

    from gputui.runs.script_run import run_script

    return partial(
        run_script, path, arguments, _request(options, {"arguments": list(arguments)}), open_cluster
    )


def _program(
    argv: tuple[str, ...], given: Mapping[str, str], options: dict[str, Any]
) -> "Prepared":
    refuse(
        (options["preset"] is not None, "give --run PRESET or --exec -- CMD, not both"),
        (not argv, "--exec: the program comes after --: gputui HOSTS --exec -n 2 -- CMD ARGS"),
        (
            options["tty"] and (options["as_json"] or not sys.stdin.isatty()),
            "--tty passes on this terminal: not with --json, nor without a terminal",
        ),
        (
            options["detach"] and options["trace"],
            "--trace: not with --detach; leave out one of them",
        ),
    )
    check_program(options, argv)
    options["send"] = options["send"] and str(Path(options["send"]).resolve())
    from gputui.cli.clusters import detach_program, remote_head

    if options["send"] and remote_head(options["attach"]):
        raise UsageError("--send: the cluster is of another machine, and so is the folder's path")
    from gputui.model.readings import Wanted
    from gputui.protocol.programs import Launch, Per, RunPrograms, run_name
    from gputui.runs.program_run import run_program

    gpus = options["gpus"] or 1
    per = Per(options["per"] or ("host" if gpus > 1 else "once"))
    if options["tty"] and per is not Per.ONCE:
        raise UsageError("--tty: for one process; add --per once")
    columns = rows = 0
    if options["tty"]:
        size = os.get_terminal_size(0)
        columns, rows = size.columns or 80, size.lines or 24
    launch = Launch(
        argv,
        options["cwd"] or str(Path.cwd()),
        cwd_optional=options["cwd"] is None,
        has_input=True,
        rows=rows,
        columns=columns,
    )
    wanted = Wanted(
        count=gpus,
        per_host=gpus if per is Per.ONCE else options["gpus_per_host"] or 0,
        memory_bytes=parse_size("--memory-free", options["memory_free"]),
        wait_s=parse_span(options["wait"] or "0"),
        whole=per is not Per.GPU and (options["gpus_per_host"] or gpus) > 1,
    )
    order = RunPrograms(
        0,
        "",
        launch,
        wanted,
        per,
        options["send"] or "",
        pin_uuid=options["pin"] == "uuid",
    )
    options["preset"] = run_name(argv[0])
    typed = {
        name.replace("_", "-"): options[name]
        for name in PROGRAM_OPTIONS
        if name in given and name not in ("tty", "detach")
    }
    request = _request(options, {**typed, "arguments": list(argv)})
    if options["detach"]:
        return partial(detach_program, request, options)
    return partial(run_program, order, request, _open_cluster(options))


def _request(options: dict[str, Any], parameters: Mapping[str, Any]) -> "RunRequest":
    from gputui.runs.run import RunRequest

    return RunRequest(
        name=options["preset"],
        parameters=parameters,
        backend=options["backend"],
        hosts=f"cluster {options['attach']}" if options["attach"] else options["hosts"] or "",
        workers=0 if options["is_program"] else options["workers"],
        min_workers=0 if options["is_program"] else options["min_workers"],
        as_json=options["as_json"],
        quiet=options["quiet"],
        trace=options["trace"],
    )


def _open_cluster(options: dict[str, Any]) -> "OpenCluster":
    """Return a function that opens the cluster of these options."""
    hosts = None if options["attach"] else options.get("read") or read_hosts("-")

    from gputui.cli.clusters import connecting, head_configuration
    from gputui.client.start import started

    frontend = "program" if options["is_program"] else "run"
    if hosts is None:
        return partial(connecting(options["attach"]), frontend=frontend, snapshots=True)
    if not options["is_program"]:
        options["wanted"] = wanted_gpus(hosts, options)
    configuration = head_configuration(hosts, options, stays=False)
    return partial(started, configuration, options.get("head"), frontend=frontend)
