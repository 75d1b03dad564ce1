"""What `tab` completes the words of the command line to, in bash, zsh and fish."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GPUTUI_COMPLETE"

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


NO_BLANK_AFTER = {
    "bash": (
        "COMPREPLY+=($value)",
        "COMPREPLY+=($value); [[ $value == *= ]] && compopt -o nospace",
    ),
    "zsh": (
        "compadd -U -V unsorted -a completions",
        "local after=' '; [[ $completions[1] == *= ]] && after=''\n"
        '        compadd -S "$after" -U -V unsorted -a completions',
    ),
}
"""What click's script for a shell adds a word by → the same without a blank after `key=`; fish adds
none. Seen in click 8.5.1."""


def script(shell: str) -> str:
    """Return the script that teaches a shell to complete gputui's words."""
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(click.Command("gputui"), {}, "gputui", VARIABLE).source()
    return source.replace(*NO_BLANK_AFTER.get(shell, ("", "")))


def words(found: Callable[[click.Context], Iterable[str]], files: bool = False) -> Complete:
    """Return a completion to some words, and to files where no word begins so."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        items = [CompletionItem(word) for word in found(ctx) if word.startswith(begun)]
        return items or [CompletionItem(begun, type="file")] * files

    return complete


def presets(_ctx: click.Context) -> Iterable[str]:
    """Return the names of presets."""
    from gputui.presets import names

    return names()


def clusters(_ctx: click.Context) -> Iterable[str]:
    """Return the names of the clusters that run on this machine."""
    from gputui.protocol.connection_file import running_clusters

    return [cluster.name for cluster in running_clusters()]


def recorded_runs(_ctx: click.Context) -> Iterable[str]:
    """Return the ids of recorded runs; those that begin with a date are in its order."""
    from gputui.folders import runs_dir

    return ["last", *sorted(path.parent.name for path in runs_dir().glob("*/run.json"))]


def help_topics(_ctx: click.Context) -> Iterable[str]:
    """Return the topics of `gputui help`."""
    from gputui.cli.listing import topics

    return topics()


def parameters(ctx: click.Context) -> Iterable[str]:
    """Return the parameters of the preset that `--run` names, each with its `=`."""
    from gputui.presets import get, names

    preset = ctx.params.get("preset")
    return [f"{each.name}=" for each in get(preset).parameters] if preset in names() else ()


def host_options(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the last option of a host's line such as `gpu-a gpus=0 mem`, else a file."""
    from gputui.model.hosts import OPTIONS

    line, blank, word = begun.rpartition(" ")
    keys = [f"{key}=" for key in OPTIONS] + ["env."]
    if not blank:
        return [CompletionItem(begun, type="file")]
    return [CompletionItem(f"{line} {key}") for key in keys if key.startswith(word)]


def of_unnamed(command: click.Command, ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return the completions of the unnamed command's options and of HOSTS."""
    with command.make_context("open", [], parent=ctx, resilient_parsing=True) as own:
        items: list[CompletionItem] = command.shell_complete(own, begun)
        return items or host_options(own, command.params[0], begun)
