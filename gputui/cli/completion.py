"""What `tab` completes the words of the command line to, in bash, zsh and fish."""

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_GPUTUI_COMPLETE"

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def script(shell: str) -> str:
    """Return the script that teaches a shell to complete gputui's words."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(click.Command("gputui"), {}, "gputui", VARIABLE).source()


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
    """Return the ids of recorded runs, the newest first."""
    from gputui.runs import recorded

    return ["last", *(record.id for record in recorded())]


def help_topics(_ctx: click.Context) -> Iterable[str]:
    """Return the topics of `gputui help`."""
    from gputui.cli.listing import topics

    return topics()


def parameters(ctx: click.Context) -> Iterable[str]:
    """Return the parameters of the preset that `--run` names, each with its `=`."""
    from gputui.presets import get, names

    preset = ctx.params.get("preset")
    return [f"{each.name}=" for each in get(preset).parameters] if preset in names() else ()


def of_unnamed(command: click.Command, ctx: click.Context, begun: str) -> list[CompletionItem]:
    """Return the completions of the unnamed command's options and of HOSTS."""
    with command.make_context("open", [], parent=ctx, resilient_parsing=True) as own:
        items: list[Any] = command.shell_complete(own, begun)
        return items or [CompletionItem(begun, type="file")]
