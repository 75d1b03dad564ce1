"""Describe a change in words: its targets, and its effect. Pure.

Names typed or marked → workers and free slots; a preview of the head → lines for a person.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from gputui.model.slots import Slot
from gputui.model.snapshot import Snapshot
from gputui.protocol.frontend import Previewed
from gputui.tui.rendering import format as fmt

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
