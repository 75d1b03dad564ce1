"""The unnamed command, `--run` without a screen, or the screen; and `attach`."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gputui.cli.terminal import interrupt_on_signals, run_until_interrupted
from gputui.client.sources import (
    HostsInput,
    check_per_host,
    parse_size,
    parse_span,
    read_hosts,
    wanted_gpus,
)
from gputui.errors import GputuiError, PresetError, UsageError
from gputui.process.lifetime import look_rarely

if TYPE_CHECKING:
    from gputui.client.remote_head import RemoteHead
    from gputui.runs.run import OpenCluster, RunRequest

Prepared = Callable[[], Coroutine[object, object, int | None]]
"""Computes what the options ask for, and returns the exit code, None for 0."""

SCREEN_IDLE_S = 3600.0
"""A cluster that a screen left running ends after so long without a frontend or a run."""

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
    if options["attach"] and options["hosts"]:
        raise UsageError("give HOSTS or --attach NAME, not both")
    if options["demo"] is not None and (options["attach"] or options["hosts"]):
        raise UsageError("--demo simulates its hosts: give neither HOSTS nor --attach")


def open_(ctx: click.Context, /, **options: Any) -> int | None:
    """Open the screen on HOSTS, or compute without one."""
    given = written_options(ctx)
    if options["preset"] is not None or options["is_program"]:
        return run_headless(ctx.obj, given, options)
    if ctx.obj:
        raise UsageError(NO_SCRIPT)
    show = prepare_screen(given, options)
    need_terminal("gputui [HOSTS] --run PRESET, or gputui up")
    return show()


def written_options(ctx: click.Context) -> dict[str, str]:
    """Return the options on the command line: name → as it is written."""
    return {
        param.name: param.opts[0]
        for param in ctx.command.params
        if param.name
        and isinstance(param, click.Option)
        and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }


def run_headless(
    script_arguments: tuple[str, ...], given: Mapping[str, str], options: dict[str, Any]
) -> int | None:
    """Compute without a screen; every wrong word is found before anything starts."""
    interrupt_on_signals()
    look_rarely()  # imports leave little behind that is worth looking for
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
            from gputui.runs.run import print_failure

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
    if options["trace"]:
        from gputui.runs.output import output_file

        options["trace"] = output_file("--trace", options["trace"])
    if options["is_program"]:
        return _program(script_arguments, given, options)
    if options["figure"] == "-" and options["as_json"]:
        raise UsageError("--figure - draws where --json prints one object: give it a file")
    if options["workers"] == 0:
        raise UsageError("--workers 0 only watches: a run needs a worker at least")
    if options["workers"] is not None and options["workers"] < options["min_workers"]:
        raise UsageError(
            f"--min-workers {options['min_workers']} is more than --workers {options['workers']}"
        )
    if re.fullmatch(r"\w+=\S*", options["hosts"] or ""):
        raise UsageError(f"{options['hosts']}: a parameter is written -p {options['hosts']}")
    if options["preset"].endswith(".py"):
        return _script(script_arguments, options)
    if script_arguments:
        raise UsageError(f"{NO_SCRIPT}; {options['preset']} is a preset: write -p key=value")
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

    request = _request(options, parameters.values)
    return partial(run_preset, parameters, output, request, open_cluster)


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

    request = _request(options, {"arguments": list(arguments)})
    return partial(run_script, path, arguments, request, open_cluster)


def _program(
    argv: tuple[str, ...], given: Mapping[str, str], options: dict[str, Any]
) -> "Prepared":
    if options["preset"] is not None:
        raise UsageError("give --run PRESET or --exec -- CMD, not both")
    if not argv:
        raise UsageError("--exec: the program comes after --: gputui HOSTS --exec -n 2 -- CMD ARGS")
    try:
        "".join(argv).encode()
    except UnicodeEncodeError as error:
        raise UsageError("--exec: an argument is no UTF-8, and cannot be sent") from error
    if options["tty"] and (options["as_json"] or not sys.stdin.isatty()):
        raise UsageError("--tty passes on this terminal: not with --json, nor without a terminal")
    if options["detach"] and options["trace"]:
        raise UsageError("--trace: not with --detach; leave out one of them")
    if options["send"] and options["cwd"]:
        raise UsageError("--send brings the folder to start in: leave out --cwd")
    from gputui.cli.clusters import detach_program, remote_head

    if options["send"] and remote_head(options["attach"]):
        raise UsageError("--send: the cluster is of another machine, and so is the folder's path")
    from gputui.model.readings import Wanted
    from gputui.protocol.programs import PROGRAM, Launch, Per, RunPrograms
    from gputui.runs.program_run import run_program

    gpus = options["gpus"] or 1
    check_per_host(gpus, options["gpus_per_host"])
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
    )
    order = RunPrograms(
        0, "", launch, wanted, per, options["send"] or "", pin_uuid=options["pin"] == "uuid"
    )
    options["preset"] = f"{PROGRAM}{argv[0]}"
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

    running = f"cluster {options['attach']}" if options["attach"] else ""
    return RunRequest(
        name=options["preset"],
        parameters=parameters,
        backend=options["backend"],
        hosts=running or options["hosts"] or "",
        workers=0 if options["is_program"] else options["workers"],
        min_workers=0 if options["is_program"] else options["min_workers"],
        as_json=options["as_json"],
        quiet=options["quiet"],
        trace=options["trace"],
    )


def _open_cluster(options: dict[str, Any]) -> "OpenCluster":
    """Return a function that opens the cluster of these options."""
    from gputui.cli.clusters import connecting, head_configuration
    from gputui.client.start import started

    frontend = "program" if options["is_program"] else "run"
    if name := options["attach"]:
        return partial(connecting(name), frontend=frontend, snapshots=True)
    hosts = read_hosts(options["hosts"])
    if not options["is_program"]:
        options["wanted"] = wanted_gpus(hosts, options)
    configuration = head_configuration(hosts, options, stays=False)
    return partial(started, configuration, frontend=frontend)


def prepare_screen(given: Mapping[str, str], options: Mapping[str, Any]) -> Callable[[], int]:
    """Prepare the screen that the options ask for; raises UsageError."""
    refuse_elsewhere(given, options)
    look = {name: options[name] for name in ("theme", "only_ascii", "readonly")}
    if options["demo"] is not None:
        from gputui.demo import shape

        opening = partial(opened_demo, shape(options["demo"]), options["seed"])
        return partial(show, opening, look, simulated=True)
    if options["attach"]:
        return partial(show_running, options["attach"], look)
    starting = {name: options[name] for name in ("hosts", "name", *AT_START)}
    hosts = read_hosts(options["hosts"])
    starting["wanted"] = wanted_gpus(hosts, options)
    return partial(show_started, hosts, look | starting)


def attach(name: str | None, **options: Any) -> int:
    """Open the screen on a cluster that runs."""
    need_terminal("gputui --attach NAME --run PRESET")
    return show_running(name, options)


def watch(hosts: str | None, **options: Any) -> int:
    """Open the screen on hosts without workers, or on their cluster where it runs."""
    need_terminal("gputui who [HOSTS]")
    starting = {"hosts": hosts, **dict.fromkeys(AT_START), "workers": 0}
    return show_started(read_hosts(hosts), options | starting)


def need_terminal(instead: str) -> None:
    """Raise UsageError where no screen can be shown, with what to write instead."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"the screen needs a terminal; without one: {instead}")
    if not sys.stderr.isatty():  # Textual draws there
        raise UsageError("the screen is drawn on stderr: leave stderr on the terminal, without 2>")
    if os.environ.get("TERM") == "dumb":
        raise UsageError(f"TERM is dumb: the screen cannot be drawn; instead: {instead}")


async def opened_demo(shape: tuple[int, int], seed: int) -> Any:
    """Start simulated hosts; returns the connection to their head."""
    from gputui.demo.cluster import Demo

    return await Demo(shape, seed=seed).open()


def show_running(name: str | None, options: Mapping[str, Any]) -> int:
    """Show a running cluster; raises UsageError when none runs, or several do."""
    from gputui.cli.clusters import chosen_cluster, remote_head
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.connection_file import find_cluster

    if (remote := remote_head(name)) is not None:
        return show(partial(remote.open, frontend="screen", snapshots=True), options, login=remote)
    chosen = chosen_cluster(name)

    async def open_connection() -> Any:
        # Another terminal may have started it again.
        socket = (find_cluster(chosen.name) or chosen).socket
        return await HeadConnection.open(socket, frontend="screen", snapshots=True)

    return show(open_connection, options)


def show_started(hosts: HostsInput, options: Mapping[str, Any]) -> int:
    """Show the cluster of these hosts: the one that runs, or one that is started now."""
    from gputui.protocol.connection_file import digest_of, find_cluster

    name = options["name"] or hosts.name
    running = find_cluster(name)
    if running and running.hosts_source != hosts.source:
        raise UsageError(
            f"a cluster called {name} runs on other hosts ({running.hosts_source or 'no file'}); "
            "give --name, or gputui attach"
        )
    given = (options["workers"] or None, *(options[each] for each in AT_START[1:]))
    if running and any(each not in (None, "") for each in given):
        these = ", --".join(AT_START).replace("_", "-")
        raise UsageError(
            f"{name} runs already, and --{these} are for its start: "
            f"leave them out, or stop it first: gputui down {name}"
        )
    notice = ""
    if running and running.hosts_digest not in ("", digest_of(hosts.text)):
        notice = (
            f"the hosts of {name} have changed since its start; to use them: gputui down {name}"
        )
    found: list[Path] = [Path(running.socket)] if running else []

    async def open_connection() -> Any:
        from gputui.client.head_connection import HeadConnection

        there = find_cluster(name)
        if there is not None and there.hosts_source == hosts.source:
            found[:] = [Path(there.socket)]  # another terminal may have started it, or again
        elif not found:
            found.append(await _start(hosts, options))
        return await HeadConnection.open(found[0], frontend="screen", snapshots=True)

    return show(open_connection, options, start_again=found.clear, notice=notice)


async def _start(hosts: HostsInput, options: Mapping[str, Any]) -> Path:
    """Start a head that outlives this screen, and return its socket."""
    from gputui.cli.clusters import head_configuration
    from gputui.client.start import spawn_head

    configuration = await asyncio.to_thread(
        head_configuration,
        hosts,
        options,
        stays=True,
        idle_timeout_s=SCREEN_IDLE_S,
        interactive=True,
    )
    head = spawn_head(configuration)
    socket = await asyncio.to_thread(head.opened)
    head.keep()
    return Path(socket)


def show(
    open_connection: Callable[[], Awaitable[Any]],
    options: Mapping[str, Any],
    start_again: Callable[[], None] | None = None,
    simulated: bool = False,
    login: "RemoteHead | None" = None,
    notice: str = "",
) -> int:
    """Show a cluster until the screen is closed, at first with a notice; raises UsageError for an
    unknown theme.
    """
    look_rarely()  # imports leave nothing behind that is worth looking for
    from gputui.tui.app import run_screen
    from gputui.tui.rendering.palette import check_theme

    look_rarely()
    if options["theme"]:
        check_theme(options["theme"])
    with asyncio.Runner() as runner:
        try:
            if login is not None:
                runner.run(login.reach())  # while the terminal is free for SSH's questions
            return run_screen(
                open_connection,
                runner.run,
                readonly=options["readonly"],
                theme=options["theme"],
                ascii=options["only_ascii"],
                start_again=None if options["readonly"] else start_again,
                simulated=simulated,
                notice=notice,
                login=login.login if login else "",
                ask_on_screen=login.ask_on_screen if login else None,
            )
        finally:
            if login is not None:
                runner.run(login.close())
