"""The commands that change the cluster: each shows a preview and asks for confirmation. They act on
the names typed after the command, else on the marked rows or the one under the cursor.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import HeadError
from gputui.model.slots import Slot
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
from gputui.tui.completion import either, hosts, slots, workers
from gputui.tui.dialogs.modal import ScaleDialog
from gputui.tui.rendering import format as fmt

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
    chosen = await app.ask(ScaleDialog(begin, preview))
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


HOSTS_NAMED = 12
WORKERS_NAMED = 2
"""So few workers bear their own names; more are counted by host."""


def preview_lines(previewed: Previewed, snapshot: Snapshot | None = None) -> tuple[str, ...]:
    """Describe a change in lines; `snapshot` has the tasks that run on the workers now.

    >>> for line in preview_lines(Previewed(1, ("b:gpu0", "b:gpu1", "c:gpu0"), (), "then rest")):
    ...     print(line)
    start 3: b ×2, c
    then rest
    """
    lines = [
        f"{verb} {len(names):,}: {by_host(names)}"
        for verb, names in (("start", previewed.starts), ("stop", previewed.stops))
        if names
    ]
    running = tasks_running(snapshot, previewed.stops) if snapshot else ""
    lines += [f"{running}; computed again on other workers"] if running else []
    return (*lines, *previewed.text.splitlines()) or ("nothing changes",)


def tasks_running(snapshot: Snapshot, names: Sequence[str]) -> str:
    """Return in words which tasks workers run now, "" for none."""
    meant = [each for each in snapshot.workers if each.name in set(names) and each.executing]
    kinds = Counter(each.current_task for each in meant if each.current_task)
    named = ", ".join(f"{kind} ×{n}" if n > 1 else kind for kind, n in kinds.most_common(3))
    running = sum(worker.executing or 0 for worker in meant)
    return f"{fmt.many(running, 'task')} running{f': {named}' if named else ''}" if running else ""


def by_host(names: Sequence[str]) -> str:
    """Return worker names as the hosts they are on, with how many; a few as they are.

    >>> by_host(["a:gpu0", "a:gpu1", "b:gpu0"]), by_host(["a:gpu0"])
    ('a ×2, b', 'a:gpu0')
    """
    if len(names) <= WORKERS_NAMED:
        return ", ".join(names)
    counts = Counter(name.rpartition(":")[0] or name for name in names)
    words = [host if many == 1 else f"{host} ×{many}" for host, many in counts.items()]
    more = len(words) - HOSTS_NAMED
    return ", ".join(words[:HOSTS_NAMED]) + (f" and {more} more hosts" if more > 0 else "")


def at_stake(snapshot: Snapshot, names: Sequence[str]) -> str:
    """Return in words what workers compute and hold; without names, what all of them do."""
    meant = [each for each in snapshot.workers if not names or each.name in names]
    computing = sum(worker.executing or 0 for worker in meant)
    results = sum(worker.in_memory or 0 for worker in meant)
    held = sum(worker.managed_bytes or 0 for worker in meant)
    many = fmt.many(len(meant), "worker")
    if not computing and not results:
        return f"{many}: nothing computing, nothing held"
    held_size = f" ({fmt.size(held)})" if held else ""
    return (
        f"{many}: {fmt.many(computing, 'task')} computing, {fmt.many(results, 'result')} held"
        f"{held_size}; lost, and computed again where needed"
    )


def workers_named(snapshot: Snapshot, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the workers that are meant by names, hosts, slots, or patterns with `*` and `?`."""
    return tuple(
        worker.name
        for worker in snapshot.workers
        if any(_means(key, worker.name, worker.host) for key in keys)
    )


def _means(key: str, name: str, host: str) -> bool:
    return key in (name, host) or name.startswith(key + ".") or fnmatchcase(name, key)


def names_worker(slots: Iterable[Slot], keys: Sequence[str]) -> bool:
    """Return whether these keys of hosts, slots or workers name a worker."""
    wanted = set(keys)
    return any(
        not wanted.isdisjoint((slot.key, slot.host.name, *(each.name for each in slot.workers)))
        for slot in slots
        if slot.workers
    )


def free_slots(slots: Iterable[Slot], keys: Sequence[str]) -> tuple[str, ...]:
    """Return those of the slots meant that have no worker and may have one."""
    return tuple(
        slot.key
        for slot in slots
        if not slot.workers
        and slot.device is not None
        and slot.device.usable
        and any(_means(key, slot.key, slot.host.name) for key in keys)
    )


def wanted_workers(snapshot: Snapshot | None) -> int:
    """Return the desired number of workers."""
    if snapshot is None:
        return 0
    wanted = snapshot.wanted_workers
    return len(snapshot.workers) if wanted is None else wanted


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
