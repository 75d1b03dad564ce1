"""The first choice, for a person without hosts and without a GPU here."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from gputui.errors import GputuiError
from gputui.tui.attachment import OpenConnection
from gputui.tui.dialogs.modal import Chooser, Picker
from gputui.tui.widgets.prompt import Asking, files, last_word

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp

HERE, SSH, FILE, DEMO = "here", "ssh", "file", "demo"


@dataclass(frozen=True, slots=True)
class First:
    """The things to choose from."""

    ssh_hosts: Sequence[str]
    """Of ~/.ssh/config."""
    begin: Callable[[str, str], OpenConnection]
    """Returns the function that opens a cluster: on `HERE`, on the hosts of a text (`SSH`) or of a
    path (`FILE`), or the `DEMO`. Raises GputuiError for hosts that cannot be read."""


async def choose(app: "ScreenApp", first: First) -> OpenConnection | None:
    """Ask until something was chosen; None is to leave."""
    while True:
        kind = await app.ask(
            Chooser[str | None]("No GPU was found here. What should be shown?", _items(first))
        )
        if kind is None:
            return None
        text = await _text(app, first, kind)
        if text is not None:
            try:
                opener = first.begin(kind, text)
            except GputuiError as error:
                app.say(str(error), bad=True)
                continue
            if kind == DEMO:
                app.simulate()
            return opener


def _items(first: First) -> list[tuple[str, Content]]:
    many = len(first.ssh_hosts)
    offers = [
        (HERE, "this machine", "workers on its CPUs"),
        (SSH, "hosts of ~/.ssh/config", f"{many} to tick"),
        (FILE, "a hosts file", "one host a line"),
        (DEMO, "the demo", "16 hosts of 8 simulated GPUs"),
    ]
    return [
        (kind, Content.assemble((f"{name:<24}", "bold"), (does, "dim")))
        for kind, name, does in offers
        if kind != SSH or many
    ]


async def _text(app: "ScreenApp", first: First, kind: str) -> str | None:
    """Return the hosts or the path for a choice; None is to choose again."""
    if kind == SSH:
        names = await app.ask(
            Picker("Hosts of ~/.ssh/config", dict.fromkeys(first.ssh_hosts, ""), ())
        )
        return "\n".join(names) if names else None
    if kind == FILE:
        typed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        asking = Asking(
            "> Which hosts file?   tab completes",
            lambda line: typed.set_result(line.strip() or None),
            cancelled=lambda: typed.set_result(None),
            candidates=lambda line: files(last_word(line)),
        )
        app.prompt.ask(asking)
        return await typed
    return ""
