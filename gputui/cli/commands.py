"""The commands and their options, as click declares them; each hands over to its own module.

Usage lines and errors show a command as it was typed: `gputui [HOSTS]` and `gputui runs ID` are
commands of their own whose names nobody types.
"""

import functools
from collections.abc import Callable, Coroutine
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import augment_usage_errors
from click.shell_completion import CompletionItem

from gputui.cli import completion
from gputui.cli.completion import of_unnamed, words
from gputui.cli.options import gpu_options, per_host_option, program_options, several, span_option
from gputui.errors import UsageError
from gputui.version import __version__

MEANT = {
    "run": "gputui --run PRESET",
    "start": "gputui up",
    "stop": "gputui down",
    "list": "gputui ls",
    "ps": "gputui ls",
    "logs": "gputui attach, view 4, or gputui runs show ID",
    "status": "gputui ls",
    "demo": "gputui --demo 125x8",
    "version": "gputui --version",
}
"""Common guesses → the right command; else they would be taken for hosts."""


class Command(click.Command):
    """A command whose every usage error has a usage line; click's parser has errors without."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the error for an option of other commands, or of a host outside of
        its quotes, says where it goes.
        """
        typed = list(args)
        try:
            with augment_usage_errors(ctx):
                return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if having := with_option(error.option_name):
                of = f"it is of {', '.join(having)}"
                raise click.UsageError(f"No such option: {error.option_name}; {of}", ctx) from error
            raise
        except click.UsageError as error:
            from gputui.model.hosts import OPTIONS

            of_host = " ".join(word for word in typed if word.partition("=")[0] in OPTIONS)
            if of_host and any(param.name == "hosts" for param in self.params):
                hint = f"a host and its options are one word: 'HOST {of_host}'"
                raise click.UsageError(f"{error.message}; {hint}", ctx) from error
            raise


def with_option(option: str) -> list[str]:
    """Return the commands that have an option, as they are typed."""
    return [
        "gputui" if name == "open" else f"gputui {name}"
        for name, command in gputui.commands.items()
        if any(option in param.opts for param in command.params)
    ]


class AsTyped(click.Context):
    """The context of a command whose name is not typed."""

    @property
    def command_path(self) -> str:
        """The typed words before the arguments: the path of the group."""
        return self.parent.command_path if self.parent else ""


class Unnamed(Command):
    """A command that runs where the first word names no other one."""

    context_class = AsTyped


UNNAMED_USAGE = "[HOSTS] [--run PRESET] [OPTIONS]"


class CommandOrHosts(click.Group):
    """A group whose first word may also be HOSTS: then it is the command `open`, unnamed."""

    command_class = Command

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both ways to begin a command."""
        formatter.write_usage(ctx.command_path, UNNAMED_USAGE)
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]…", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the unnamed command, then the other commands."""
        click.Command.format_options(self.commands["open"], ctx, formatter)
        self.format_commands(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `open` before what names no command."""
        first = args[0] if args else ""
        if ctx.resilient_parsing and not args:  # the word to complete is the first one
            return super().parse_args(ctx, args)
        if first not in self.commands and first not in ("--help", "-h"):
            meant = MEANT.get(first) or self._like(*args[:2])
            if meant and not (ctx.resilient_parsing or Path(first).exists()):
                raise UsageError(
                    f"no command '{first}'; did you mean {meant}? "
                    "(to use a host of that name, write it into a hosts file)"
                )
            args = ["open", *args]
        return super().parse_args(ctx, args)

    def _like(self, first: str = "", second: str = "") -> str:
        """Return the command that is spelled nearly so, where a word follows; HOSTS is one word."""
        if not second or "=" in second or "-" in (first[:1], second[:1]):
            return ""
        near = get_close_matches(first, self.commands, 1)
        return f"gputui {near[0]}" if near else ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they are declared."""
        return list(self.commands)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names, else the unnamed command's options and HOSTS."""
        found = super().shell_complete(ctx, incomplete)
        return found or of_unnamed(self.commands["open"], ctx, incomplete)


HELP = """From a file of hosts to a running, encrypted, observed cluster of GPU workers on Dask.

\b
  gputui                       the screen, on this machine
  gputui hosts.txt             the screen, on these hosts
  gputui hosts.txt --run svd   no screen: start, compute, print, stop
  gputui --run mine.py -- 3    your script; its Client() finds the cluster

HOSTS is a file with one host a line, `-` for stdin, or such lines as an argument, with `;`
between them. Exit codes: 0 done, 1 the computation failed, 2 wrong usage, 3 no cluster to run
on, 130 interrupted.
"""


@click.group(
    cls=CommandOrHosts,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.pass_context
def gputui(ctx: click.Context) -> None:
    """Refuse a script's arguments where no script can be named."""
    if ctx.obj.script_arguments and ctx.invoked_subcommand != "open":
        hint = f"gputui --run SCRIPT.py -- {' '.join(ctx.obj.script_arguments)}"
        raise UsageError(f"what follows -- belongs to a script that --run names: {hint}")


def _checked_name(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """Return a name for a cluster; raises UsageError."""
    if name is None:
        return None
    from gputui.protocol.connection_file import check_name

    return check_name(name)


def _checked_port(context: click.Context, option: click.Parameter, port: int | None) -> int | None:
    """Return a port that is free; raises UsageError: Dask would take another one.

    With --on it is of another machine, whose gputui checks it.
    """
    if port is None or context.params.get("on"):
        return port
    import socket
    from importlib.util import find_spec

    if option.name == "dashboard" and find_spec("bokeh") is None:
        raise UsageError("--dashboard needs bokeh: pip install 'gputui[report]'")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            hint = "name another one, or 0 for any"
            raise UsageError(f"{option.opts[0]} {port}: {error.strerror}; {hint}") from error
    return port


def _print_specification(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    """Print what there is, for programs, and end."""
    if wanted and not context.resilient_parsing:
        from gputui.cli.listing import print_specification

        print_specification(gputui)
        context.exit()


def carried_out_in(module: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Have a command carried out by the function of its name in a module of `gputui.cli`.

    It is imported then: help and usage errors wait for nothing. One that is `async` is run in an
    event loop of its own. It returns its exit code, None for 0.
    """

    def declared(command: Callable[[], None]) -> Callable[..., Any]:
        @functools.wraps(command)
        def carry_out(*given: Any, **options: Any) -> Any:
            function = getattr(import_module(f"gputui.cli.{module}"), command.__name__)
            try:
                done = function(*given, **options)
                if isinstance(done, Coroutine):
                    from gputui.cli.terminal import run_until_interrupted

                    done = run_until_interrupted(done)
            except BrokenPipeError:  # nobody reads its output any more: click would exit with 1
                return None
            return done

        return carry_out

    return declared


hosts_argument = click.argument("hosts", required=False, shell_complete=completion.host_options)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON: gputui help json.")
screen_options = several(
    click.option(
        "--readonly", is_flag=True, help="Watch only: no command that changes the cluster."
    ),
    click.option("--theme", help="Colours: textual-dark, textual-light, okabe-ito, ansi-dark, …"),
    click.option("--ascii", "only_ascii", is_flag=True, help="Draw with ASCII only."),
)
name_option = click.option(
    "--name",
    callback=_checked_name,
    help="Name of the cluster.  [default: the hosts file's stem]",
)
starting_options = several(
    name_option,
    click.option(
        "--workers",
        type=click.IntRange(0, 1_000_000),
        metavar="N",
        help="Number of workers; 0 only watches.  [default: as many as the hosts give]",
    ),
    click.option(
        "--busy",
        type=click.Choice(["warn", "skip", "refuse"]),
        help="What to do about GPUs that others use.  [default: warn]",
    ),
    click.option(
        "--dashboard",
        metavar="PORT",
        type=click.IntRange(0, 65535),
        callback=_checked_port,
        help="Serve Dask's dashboard on this port of the loopback address.",
    ),
    click.option(
        "--metrics",
        metavar="PORT",
        type=click.IntRange(0, 65535),
        callback=_checked_port,
        help="Serve metrics for Prometheus on this port of the loopback address.",
    ),
    click.option(
        "--notify",
        metavar="CMD|URL",
        help="Tell a command or a webhook of alarms and runs that end: gputui help metrics.",
    ),
)


@gputui.command("open", hidden=True, cls=Unnamed, options_metavar=UNNAMED_USAGE)
@click.argument("hosts", required=False, metavar="", shell_complete=completion.host_options)
@click.option(
    "--run",
    "preset",
    metavar="PRESET",
    shell_complete=words(completion.presets, files=True),
    help="Compute without a screen, and stop: a name, FILE.py:THING, or SCRIPT.py [-- ARG…].",
)
@click.option(
    "--exec",
    "is_program",
    is_flag=True,
    help="Run any program on free GPUs, without Dask: gputui HOSTS --exec -n 4 -- CMD ARGS.",
)
@program_options
@click.option("--tty", is_flag=True, help="Give a program of one process a terminal.")
@click.option("--detach", is_flag=True, help="Leave the program running; gputui attach shows it.")
@click.option(
    "-p",
    "--param",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=words(completion.parameters),
    help="A parameter of the preset; may be given again.",
)
@starting_options
@click.option(
    "--min-workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Fail with fewer workers (exit 3).",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "cupy", "numpy"]),
    default="auto",
    show_default=True,
    help="Array library of the workers.",
)
@click.option(
    "--attach",
    metavar="NAME",
    shell_complete=words(completion.clusters),
    help="Use a running cluster, here or at USER@LOGIN:NAME, and leave it running.",
)
@json_option
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--save", metavar="DIR", help="Save the result's arrays there, as .npy files.")
@click.option("--report", metavar="FILE.html", help="Write Dask's performance report.")
@click.option("--trace", metavar="FILE.json", help="Write a trace that Perfetto opens.")
@click.option(
    "--figure", metavar="FILE.png", help="Plot the result into a file; - plots it in this terminal."
)
@click.option(
    "--demo",
    metavar="[HOSTSxGPUS]",
    is_flag=False,
    flag_value="4x8",
    help="Open the screen on simulated hosts, such as 125x8; by itself, 4x8.",
)
@click.option("--seed", type=int, default=0, help="Random seed of the demo.")
@screen_options
@click.version_option(__version__, prog_name="gputui")
@click.option(
    "--spec",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_specification,
    help="Print commands, presets and settings as JSON, for programs: gputui help json.",
)
@click.pass_context
@carried_out_in("unnamed")
def open_() -> None:
    """Open the screen on HOSTS, or compute without one."""


@gputui.command()
@hosts_argument
@name_option
@screen_options
@carried_out_in("screen")
def watch() -> None:
    """Open the screen on HOSTS without workers: every GPU, its users and its claim.

    The hosts need Python only. It ends with the screen, unless it is kept.
    """


@gputui.command()
@hosts_argument
@starting_options
@gpu_options
@per_host_option
@span_option(
    "--for",
    default="8h",
    show_default=True,
    help="Promise others to be done by then; nothing ends it.",
)
@click.option(
    "--idle-timeout",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Stop after this time with no frontend attached and nothing running; default: never.",
)
@click.option(
    "--on",
    metavar="USER@LOGIN",
    is_eager=True,  # the check of a port asks for it
    help="Start it on another machine, over SSH; gputui attach USER@LOGIN shows it here.",
)
@click.option(
    "--remote-gputui",
    metavar="PATH",
    help="gputui there.  [default: the first of a login shell's PATH, this path, ~/.local]",
)
@carried_out_in("clusters")
def up() -> None:
    """Start a cluster on HOSTS and leave it running."""


@gputui.command()
@click.argument("name", required=False, shell_complete=words(completion.clusters))
@screen_options
@carried_out_in("screen")
def attach() -> None:
    """Open the screen on a running cluster."""


@gputui.command()
@click.argument(
    "where",
    required=False,
    metavar="[NAME | USER@LOGIN]",
    shell_complete=words(completion.clusters),
)
@json_option
@carried_out_in("clusters")
def ls() -> None:
    """List running clusters, on this machine or another one."""


@gputui.command()
@click.argument("name", required=False, shell_complete=words(completion.clusters))
@click.option("--all", "everything", is_flag=True, help="Stop every cluster.")
@carried_out_in("clusters")
def down() -> None:
    """Stop a cluster; without a name, the only one."""


@gputui.command()
@click.argument("name", required=False, shell_complete=words(completion.clusters))
@carried_out_in("clusters")
def metrics() -> None:
    """Print a running cluster's metrics, as Prometheus reads them."""


@gputui.command()
@click.argument(
    "words", nargs=-1, metavar="[NAME | new NAME]", shell_complete=words(completion.presets)
)
@json_option
@carried_out_in("listing")
def presets() -> None:
    """List presets, show the parameters of one, or write a new one."""


class CommandOrRun(click.Group):
    """A group whose first word may also be the id of a run: then it is `show`, unnamed."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Put `show` before what names no command."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names and options, and the ids of runs."""
        runs = words(completion.recorded_runs)(ctx, self.params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *runs]


@gputui.group(cls=CommandOrRun, invoke_without_command=True)
@json_option
@click.pass_context
def runs(ctx: click.Context, as_json: bool) -> None:
    """List earlier runs; `gputui runs ID` shows one."""
    from gputui.cli.listing import list_runs

    if not ctx.invoked_subcommand:
        list_runs(as_json)


@runs.command("show", cls=Unnamed)
@click.argument("id_", metavar="ID", shell_complete=words(completion.recorded_runs))
@json_option
@click.option("--trace", metavar="FILE.json", help="Write its trace instead, for Perfetto.")
@click.pass_context
def show_run(ctx: click.Context, id_: str, as_json: bool, trace: str | None) -> None:
    """Show one run; ID may be the start or the end of an id, or `last`."""
    from gputui.cli.listing import show_run

    assert ctx.parent
    show_run(id_, as_json or ctx.parent.params["as_json"], trace)


@runs.command("diff")
@click.argument("first", metavar="A", shell_complete=words(completion.recorded_runs))
@click.argument("second", metavar="B", shell_complete=words(completion.recorded_runs))
@json_option
@carried_out_in("listing")
def diff_runs() -> None:
    """Show two runs side by side: what differs first."""


@gputui.command()
@click.argument("name", required=False, shell_complete=words(completion.clusters))
@json_option
@click.option("--bundle", metavar="FILE.tar.gz", help="Pack all of it for a report, no secrets.")
@carried_out_in("why")
def why() -> None:
    """Say why a running cluster is stuck, with every worker's stacks as evidence."""


@gputui.command()
@hosts_argument
@carried_out_in("hosts")
def doctor() -> None:
    """Check HOSTS: what is wrong, and how to fix it."""


@gputui.command()
@hosts_argument
@click.option(
    "--by", type=click.Choice(["gpu", "host", "user"]), default="gpu", help="A row for each."
)
@click.option(
    "--only", multiple=True, metavar="FILTER", help="free, user:NAME or 'idle>1h'; all must hold."
)
@json_option
@click.option("--watch", is_flag=True, help="Print it again every two seconds.")
@carried_out_in("hosts")
def who() -> None:
    """Show whose GPU it is: users, processes and claims on HOSTS, without a cluster."""


@gputui.command()
@hosts_argument
@gpu_options
@span_option("--for", "span", help="Release them after this, such as 4h.")
@click.option("--note", default="", help="What for; shown to others.")
@click.option("--pid", type=click.IntRange(1), help="Hold those of a process until it ends.")
@click.option("--list", "listed", is_flag=True, help="Show your claims.")
@click.option("--release", is_flag=True, help="End your claims of this kind.")
@carried_out_in("hosts")
def claim() -> None:
    """Hold free GPUs of HOSTS, so that others leave them alone, until ctrl+C."""


@gputui.command()
@click.argument("hosts", required=False, metavar="HOSTS", shell_complete=completion.host_options)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--lock", metavar="FILE", help="Install exactly what this requirements file with hashes lists."
)
@click.option(
    "--wheels", metavar="FOLDER", help="Folder of wheels on this machine to send to the hosts."
)
@click.option("--index", metavar="URL", default="", help="Package index to install from.")
@click.option("--host-pip-conf", is_flag=True, help="Use the hosts' own pip settings, too.")
@click.option("--build", is_flag=True, help="Build packages there that have no wheel.")
@carried_out_in("hosts")
def bootstrap() -> None:
    """Install on HOSTS the Python packages that workers need, in the versions used here.

    gputui itself is not installed there: each start sends what the hosts run of it, from this
    installation or checkout.
    """


@gputui.command("help")
@click.argument("topic", required=False, shell_complete=words(completion.help_topics))
@carried_out_in("listing")
def show_help() -> None:
    """List the topics of the documentation, or show one."""


@gputui.command("completion")
@click.argument("shell", type=click.Choice(completion.SHELLS))
def completion_(shell: str) -> None:
    """Print the completion of a shell; eval "$(gputui completion bash)" in ~/.bashrc."""
    print(completion.script(shell))
