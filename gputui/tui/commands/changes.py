"""The commands that change the cluster: each shows a preview and asks for confirmation. They act on
the names typed after the command, else on the marked rows or the one under the cursor.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import HeadError
from gputui.model.snapshot import HostState, Snapshot
from gputui.protocol.frontend import (
    Adapt,
    AddWorkers,
    ChangeHosts,
    Done,
    Previewed,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
)
from gputui.tui.commands.command_registry import Command
from gputui.tui.commands.targets import (
    at_stake,
    by_host,
    free_slots,
    names_worker,
    preview_lines,
    wanted_workers,
    workers_named,
)
from gputui.tui.completion import either, hosts, slots, workers
from gputui.tui.dialogs.questions import ScaleDialog

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp

Change = Scale | RetireWorkers | AddWorkers | ChangeHosts


async def change(app: "ScreenApp", request: Change, title: str) -> None:
    """Preview a request, ask for confirmation, and send it."""
    if await app.person.confirm(title, lambda: _preview(app, request)):
        await _do(app, request)


async def _preview(app: "ScreenApp", request: Change) -> tuple[str, ...]:
    previewed = await app.head.request(replace(request, preview=True))
    assert isinstance(previewed, Previewed)
    return preview_lines(previewed, app.watched.snapshot)


async def _do(
    app: "ScreenApp", request: Change | Adapt | Restart | RetryHosts, text: str = ""
) -> None:
    done = await app.head.request(request)
    app.say(text or (done.text if isinstance(done, Done) else ""))


async def _scale(app: "ScreenApp", argument: str) -> None:
    words = argument.split()
    host = words.pop(0) if len(words) > 1 else None
    if not words:
        await _scale_by(app, 0)
        return
    title = f"Scale {host or 'the cluster'} to {words[0]}"
    await change(app, Scale(0, _number(words[0]), host), title)


def _number(word: str) -> int | None:
    """Return how many are meant; None for as many as the hosts give."""
    if word in ("max", "all"):
        return None
    if not (word.isdecimal() and word.isascii()):
        raise HeadError(f"{word}: write a number of workers, or max")
    return int(word)


async def _scale_by(app: "ScreenApp", more: int) -> None:
    async def preview(workers: int) -> Sequence[str]:
        try:
            return await _preview(app, Scale(0, workers))
        except HeadError as error:
            return (str(error),)

    begin = max(0, wanted_workers(app.watched.snapshot) + more)
    chosen = await app.ask(ScaleDialog(begin, preview, "Scale the cluster"))
    if chosen is not None:
        await _do(app, Scale(0, int(chosen)))


async def _adaptive(app: "ScreenApp", argument: str) -> None:
    if argument == "off":
        await _do(app, Adapt(0, 0, 0, on=False))
        return
    words = argument.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise HeadError("write the fewest and the most workers: adaptive 1 8, or off")
    fewest, most = map(int, words)
    if fewest > most:
        raise HeadError("write the fewest workers first, then the most")

    async def preview() -> Sequence[str]:
        return (
            *(f"idle: {line}" for line in await _preview(app, Scale(0, fewest))),
            *(f"busy: {line}" for line in await _preview(app, Scale(0, most))),
        )

    if await app.person.confirm(f"Scale between {fewest} and {most} workers?", preview):
        await _do(app, Adapt(0, fewest, most))


def _targets(app: "ScreenApp", argument: str) -> tuple[str, ...]:
    return tuple(argument.split()) or (app.view.targets() if app.view else ())


async def _retire(app: "ScreenApp", argument: str) -> None:
    targets = _targets(app, argument)
    names = workers_named(_snapshot(app), targets)
    if not names:
        raise HeadError("no worker there")
    await change(app, RetireWorkers(0, names), f"Retire {by_host(names)}")


async def _add_workers(app: "ScreenApp", argument: str) -> None:
    names = free_slots(app.watched.slots, _targets(app, argument))
    if not names:
        raise HeadError("no free GPU there")
    await change(app, AddWorkers(0, names), f"Start workers on {by_host(names)}")


async def _restart(app: "ScreenApp", argument: str) -> None:
    everything = argument == "all"
    names = () if everything else workers_named(_snapshot(app), _targets(app, argument))
    if not names and not everything:
        raise HeadError("no worker there; :restart all for all of them")
    whom = "all workers" if everything else by_host(names)
    if await app.person.confirm(f"Restart {whom}?", (at_stake(_snapshot(app), names),)):
        await _do(app, Restart(0, names))


async def _add_hosts(app: "ScreenApp", argument: str) -> None:
    text = "\n".join(part.strip() for part in argument.split(";"))
    if not text:
        raise HeadError("write a host as in hosts.txt: gpu-d gpus=0,1")
    await change(app, ChangeHosts(0, text=text), f"Add {argument}")


async def _remove_hosts(app: "ScreenApp", argument: str) -> None:
    names = tuple(argument.replace(",", " ").split())
    if not names:
        raise HeadError("write the hosts to remove")
    await change(app, ChangeHosts(0, remove=names), f"Remove {', '.join(names)}")


async def _reload(app: "ScreenApp") -> None:
    source = _hosts_source(app)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HeadError(f"{source}: {error}") from error
    await change(app, ChangeHosts(0, text=text, replace=True), f"Read {Path(source).name} again")


def _hosts_source(app: "ScreenApp") -> str:
    return app.head.connection.attached.hosts_source if app.head.connection else ""


async def _retry(app: "ScreenApp", argument: str) -> None:
    await _do(app, RetryHosts(0, tuple(argument.replace(",", " ").split())))


def _snapshot(app: "ScreenApp") -> Snapshot:
    if app.watched.snapshot is None:
        raise HeadError("the cluster has not answered yet")
    return app.watched.snapshot


def _no_cluster(app: "ScreenApp") -> str:
    return "" if app.watched.snapshot else "the cluster has not answered yet"


def _no_workers(app: "ScreenApp") -> str:
    snapshot = app.watched.snapshot
    return "" if snapshot and snapshot.workers else "no workers yet"


def _no_worker_there(app: "ScreenApp") -> str:
    targets = app.view.targets() if app.view else ()
    return "" if names_worker(app.watched.slots, targets) else "no worker there"


def _no_source(app: "ScreenApp") -> str:
    return "" if _hosts_source(app) else "this cluster was not started from a file"


def _none_failed(app: "ScreenApp") -> str:
    snapshot = app.watched.snapshot
    failed = (HostState.FAILED, HostState.SILENT)
    if snapshot and any(host.state in failed for host in snapshot.hosts):
        return ""
    return "no host has failed or is silent"


COMMANDS = tuple(
    replace(command, changes=True)
    for command in (
        Command(
            "scale", "Set the number of workers, in all or on one host", _scale, "", "[HOST] N|max",
            unavailable=_no_cluster, suggest=either("max", then=hosts),
        ),
        Command(
            "more", "Add workers, after a preview", lambda app: _scale_by(app, 1), "plus",
            hint="scale", unavailable=_no_cluster,
        ),
        Command(
            "fewer", "Remove workers, after a preview", lambda app: _scale_by(app, -1),
            "minus", unavailable=_no_cluster,
        ),
        Command(
            "adaptive", "Scale with the work, within bounds", _adaptive, "",
            "FEWEST MOST|off", unavailable=_no_cluster, suggest=either("off"),
        ),
        Command(
            "retire", "Retire workers: move their results, then stop them", _retire, "x", "[NAME…]",
            "retire", unavailable=_no_workers, pointless=_no_worker_there, suggest=workers,
        ),
        Command(
            "start", "Start workers on free GPUs", _add_workers, "a", "[NAME…]",
            unavailable=_no_cluster, suggest=slots,
        ),
        Command(
            "restart", "Restart workers: those named, or all", _restart, "R", "[NAME…|all]",
            "restart", unavailable=_no_workers, pointless=_no_worker_there,
            suggest=either("all", then=workers),
        ),
        Command("add", "Add hosts", _add_hosts, "", "HOST [key=value…]"),
        Command("remove", "Remove hosts", _remove_hosts, "", "HOST…", suggest=hosts),
        Command("reload", "Read the hosts file again", _reload, unavailable=_no_source),
        Command(
            "retry", "Retry failed and silent hosts", _retry, "", "[HOST…]",
            unavailable=_none_failed, suggest=hosts,
        ),
        Command("stop", "Stop the cluster", lambda app: app.person.stop()),
    )
)  # fmt: skip
