"""The commands that change the cluster: each shows a preview and asks for confirmation. They act on
the names typed after the command, else on the marked rows or the one under the cursor.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gputui.errors import HeadError
from gputui.model.slots import Slot, SlotState
from gputui.model.snapshot import AWAY, RETRIED, WorkerStatus
from gputui.protocol.frontend import (
    AddWorkers,
    ChangeHosts,
    Done,
    Previewed,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
)
from gputui.tui.commands import Command
from gputui.tui.commands.actions import hosts, workers
from gputui.tui.dialogs import ScaleDialog, confirm
from gputui.tui.frame import Frame
from gputui.tui.rendering import format as fmt

Change = Scale | RetireWorkers | AddWorkers | ChangeHosts


async def change(app: Frame, request: Change, title: str) -> None:
    """Preview a request, ask for confirmation, and send it."""
    if await confirm(app, title, lambda: _preview(app, request)):
        await _do(app, request)


async def _preview(app: Frame, request: Change) -> tuple[str, ...]:
    previewed = await app.head.request(replace(request, preview=True))
    assert isinstance(previewed, Previewed)
    return preview_lines(previewed, app.watched.workers)


async def _do(app: Frame, request: Change | Restart | RetryHosts) -> None:
    done = await app.head.request(request)
    app.say(done.text if isinstance(done, Done) else "")


async def _scale(app: Frame, argument: str) -> None:
    if not argument:
        await _scale_by(app, 0)
        return
    everything = argument in ("max", "all")
    if not everything and not (argument.isdecimal() and argument.isascii()):
        raise HeadError(f"{argument}: write a number of workers, or max")
    request = Scale(0, None if everything else int(argument))
    await change(app, request, f"Scale the cluster to {argument}")


async def _scale_by(app: Frame, more: int) -> None:
    async def preview(workers: int) -> Sequence[str]:
        try:
            return await _preview(app, Scale(0, workers))
        except HeadError as error:
            return (str(error),)

    snapshot = app.watched.snapshot
    wanted = snapshot.wanted_workers
    if wanted is None:
        states = [each.state for each in snapshot.hosts]
        if any(not (state.final or state in AWAY) for state in states):
            hint = "until all hosts have come up, write a number: :scale N"
            raise HeadError(f"how many workers the hosts give is not known yet; {hint}")
        wanted = len(app.watched.workers)
    dialog = ScaleDialog(max(0, wanted + more), preview)
    if await app.ask(dialog) == "y":
        await _do(app, Scale(0, dialog.wanted))


def _targets(app: Frame, argument: str) -> Sequence[str]:
    return argument.split() or app.view.targets()


async def _retire(app: Frame, argument: str) -> None:
    names = workers_named(app.watched.workers, _targets(app, argument))
    if not names:
        raise HeadError("no worker there")
    await change(app, RetireWorkers(0, names), f"Retire {fmt.by_host(names)}")


async def _add_workers(app: Frame, argument: str) -> None:
    watching, targets = app.watched.watching, _targets(app, argument)

    def free() -> tuple[str, ...]:
        slots = app.watched.slots
        if watching:
            slots = [slot for slot in slots if slot.state is SlotState.FREE]
        return free_slots(slots, targets)

    if not (names := free()):
        raise HeadError("no free GPU there" + (": mark some with space" if watching else ""))
    request = AddWorkers(0, names)
    title = f"Start workers on {fmt.by_host(names)}"
    if await confirm(app, title, lambda: _preview(app, request)):
        if taken := {*names} - {*free()}:
            raise HeadError(f"not free any more: {fmt.by_host(sorted(taken))}")
        await _do(app, request)


async def _more(app: Frame) -> None:
    """Add a worker; where none is wanted yet, start some on the free GPUs that are marked."""
    await (_add_workers(app, "") if app.watched.watching else _scale_by(app, 1))


async def _restart(app: Frame, argument: str) -> None:
    everyone, whom = app.watched.workers, "all workers"
    names: tuple[str, ...] = ()
    if argument != "all":
        names = workers_named(everyone, _targets(app, argument))
        whom = fmt.by_host(names)
        if not names:
            raise HeadError("no worker there; :restart all for all of them")
    if await confirm(app, f"Restart {whom}?", (at_stake(everyone, names),)):
        await _do(app, Restart(0, names))


async def _add_hosts(app: Frame, argument: str) -> None:
    text = "\n".join(part.strip() for part in argument.split(";"))
    if not text:
        raise HeadError("write a host as in hosts.txt: gpu-d gpus=0,1")
    await change(app, ChangeHosts(0, text=text), f"Add {argument}")


async def _remove_hosts(app: Frame, argument: str) -> None:
    names = tuple(argument.replace(",", " ").split())
    if not names:
        raise HeadError("write the hosts to remove")
    await change(app, ChangeHosts(0, remove=names), f"Remove {', '.join(names)}")


async def _retry(app: Frame, argument: str) -> None:
    failed = [host.name for host in app.watched.snapshot.hosts if host.state in RETRIED]
    meant = argument.replace(",", " ").split() or {*failed} & {*app.view.targets()}
    await _do(app, RetryHosts(0, tuple(sorted(meant))))


def _no_cluster(app: Frame) -> str:
    return "" if app.watched.snapshot.name else "the cluster has not answered yet"


def _no_workers(app: Frame) -> str:
    return "" if app.watched.workers else "no workers yet"


def _no_worker_there(app: Frame) -> str:
    return "" if workers_named(app.watched.workers, app.view.targets()) else "no worker there"


def _none_failed(app: Frame) -> str:
    found = any(host.state in RETRIED for host in app.watched.snapshot.hosts)
    return "" if found else "no host has failed or is reconnecting"


def preview_lines(previewed: Previewed, workers: Sequence[WorkerStatus] = ()) -> tuple[str, ...]:
    """Describe a change in lines; `workers` have the tasks that run now.

    >>> for line in preview_lines(Previewed(1, ("b:gpu0", "b:gpu1", "c:gpu0"), (), "then rest")):
    ...     print(line)
    start 3: b ×2, c
    then rest
    """
    lines = [
        f"{verb} {len(names):,}: {fmt.by_host(names)}"
        for verb, names in (("start", previewed.starts), ("stop", previewed.stops))
        if names
    ]
    stopped = set(previewed.stops)
    meant = [each for each in workers if each.name in stopped and each.executing]
    if running := sum(worker.executing or 0 for worker in meant):
        kinds = Counter(each.current_task for each in meant if each.current_task)
        names = [f"{kind} ×{n}" if n > 1 else kind for kind, n in kinds.most_common(3)]
        named = f": {', '.join(names)}" if names else ""
        lines.append(f"{fmt.many(running, 'task')} running{named}; computed again on other workers")
    return (*lines, *previewed.text.splitlines()) or ("nothing changes",)


def at_stake(workers: Iterable[WorkerStatus], names: Sequence[str]) -> str:
    """Return in words what workers compute and hold; without names, what all of them do."""
    meant = [each for each in workers if not names or each.name in names]
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


def _meant(keys: Sequence[str]) -> Callable[[str, str], bool]:
    """Return the test whether keys name a worker or slot, its slot or its host.

    >>> meant = _meant(["a", "b:gpu0"])
    >>> [meant(name, name[0]) for name in ("a:gpu3", "b:gpu0.1", "b:gpu1")]
    [True, True, False]
    """
    known = frozenset(keys)
    return lambda name, host: name in known or host in known or name.rpartition(".")[0] in known


def workers_named(workers: Iterable[WorkerStatus], keys: Sequence[str]) -> tuple[str, ...]:
    """Return the workers that are meant by names, hosts or slots."""
    meant = _meant(keys)
    return tuple(worker.name for worker in workers if meant(worker.name, worker.host))


def free_slots(slots: Iterable[Slot], keys: Sequence[str]) -> tuple[str, ...]:
    """Return those of the slots meant that have no worker and may have one."""
    meant = _meant(keys)
    return tuple(
        slot.key
        for slot in slots
        if not slot.workers and slot.device is not None and slot.device.usable
        if meant(slot.key, slot.host.name)
    )


def _slots(app: Frame, words: list[str]) -> Iterable[str]:
    """Suggest hosts, and places for a worker that have none."""
    return [*hosts(app, words), *(slot.key for slot in app.watched.slots if not slot.workers)]


COMMANDS = tuple(
    replace(command, changes=True)
    for command in (
        Command(
            "scale", "Set the number of workers", _scale, "", "N|max",
            unavailable=_no_cluster, suggest=lambda _app, _words: ["max"],
        ),
        Command(
            "more", "Add workers, after a preview", _more, "plus",
            hint="scale", unavailable=_no_cluster,
        ),
        Command(
            "fewer", "Remove workers, after a preview", lambda app: _scale_by(app, -1),
            "minus", unavailable=_no_cluster,
        ),
        Command(
            "retire", "Retire workers: move their results, then stop them", _retire, "x", "[NAME…]",
            "retire", unavailable=_no_workers, pointless=_no_worker_there, suggest=workers,
        ),
        Command(
            "start", "Start workers on free GPUs", _add_workers, "a", "[NAME…]",
            unavailable=_no_cluster, suggest=_slots,
        ),
        Command(
            "restart", "Restart workers: those named, or all", _restart, "R", "[NAME…|all]",
            "restart", unavailable=_no_workers, pointless=_no_worker_there,
            suggest=lambda app, words: ["all", *workers(app, words)],
        ),
        Command("add", "Add hosts", _add_hosts, "", "HOST [key=value…]"),
        Command("remove", "Remove hosts", _remove_hosts, "", "HOST…", suggest=hosts),
        Command(
            "retry", "Retry failed and reconnecting hosts: under the cursor, or all", _retry, "r",
            "[HOST…]", "retry",
            unavailable=_none_failed, suggest=hosts,
        ),
        Command("stop", "Stop the cluster", lambda app: app.person.stop()),
    )
)  # fmt: skip
