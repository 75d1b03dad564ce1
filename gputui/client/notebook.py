"""A cluster in a notebook's cell: the fleet, live, in one widget of anywidget's.

Each second a snapshot of the head becomes columns of small numbers; those that changed go to
`notebook.js`, which draws them. Nothing is sent while the kernel could hear from the page and does
not. For where no kernel runs the cell has HTML, too, which the live widget hides: the fleet as it
was when it was shown, when the last run ended, or when the cluster was closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from html import escape
from pathlib import Path
from time import localtime, strftime
from typing import Any
from uuid import uuid4

import traitlets
from anywidget import AnyWidget
from IPython import get_ipython
from IPython.display import display, update_display

from gputui.client.head_connection import HeadConnection
from gputui.errors import GputuiError
from gputui.model.alarms import Alarms
from gputui.model.plain_text import MISSING, cut
from gputui.model.series import of_device, of_worker
from gputui.model.slots import PLACES, Slot, SlotState, slots_of
from gputui.model.snapshot import RunStatus, Snapshot
from gputui.presets.definition import figure_of
from gputui.process.background import within
from gputui.protocol.frontend import SnapshotTaken

PAST_S = 60
FIRST_S = 2.0
"""How long the first snapshot may take."""
UNHEARD_S = 30
"""A page that is looked at says so every ten seconds."""
RUNS = 4
ALARMS = 8
TEXT_CHARS = 200
GIB = 2**30
NOTHING = {"text/plain": ""}
NO_MODEL = (
    ".jp-OutputArea-child:has({0}) + .jp-OutputArea-child > .jp-OutputArea-output:not(:has(*))"
    " {{ display: none; }}"
)
"""The style that hides, behind the element {0}, what JupyterLab writes where it has no live widget:
its renderer tries no other form of an output. Seen in jupyterlab_widgets 3.0.17."""
COLUMNS = ("busy", "memory", "watts", "degrees", "tasks")
HEADS = {
    "state": ("state", ""),
    "busy": ("busy", " %"),
    "memory": ("memory", " %"),
    "watts": ("power", " W"),
    "degrees": ("temperature", " °C"),
    "tasks": ("tasks", ""),
}
"""Columns of a table, each with its head and its unit."""


class FleetColumns:
    """Snapshots in, what the page shows out: names, columns of numbers, alarms, runs."""

    def __init__(self) -> None:
        self.newest: dict[str, Any] = {}
        self._alarms = Alarms()
        self._past: deque[str] = deque(maxlen=PAST_S)

    def look(self, snapshot: Snapshot) -> dict[str, Any]:
        """Take in a snapshot; return the values of the traits."""
        slots = slots_of(snapshot)
        self._alarms.look(snapshot, slots)
        columns = dict(zip(COLUMNS, zip(*map(_row, slots), strict=True), strict=False))
        shown = {name: list(columns.get(name, ())) for name in COLUMNS}
        # A character for each percentage, as `notebook.js` reads them.
        busy = ("-" if each is None else chr(48 + min(each, 100) // 2) for each in shown["busy"])
        self._past.append("".join(busy))
        runs = snapshot.runs[: -RUNS - 1 : -1]
        figures = {run.id: figure_of(run.result_json) for run in runs}
        running = sum(worker.executing or 0 for worker in snapshot.workers)
        left = sum(group.total - group.finished for group in snapshot.groups)
        wanted = snapshot.wanted_workers
        self.newest = shown | {
            "at": int(snapshot.taken_at),
            "about": {
                "name": snapshot.name,
                "state": snapshot.reason or snapshot.state.value,
                "up": snapshot.workers_up,
                "wanted": len(snapshot.workers) if wanted is None else wanted,
                "running": running,
                "waiting": max(0, left - running),
                "ended": "",
            },
            "fleet": {"places": [_place(slot) for slot in slots], "states": list(SlotState)},
            "states": [PLACES[slot.state] for slot in slots],
            "alarms": [[alarm.serious, f"{alarm.subject}: {alarm.kind}"] for alarm in self._alarms][
                :ALARMS
            ],
            "runs": [_run(run) for run in runs],
            "figures": {id: asdict(figure) for id, figure in figures.items() if figure},
        }
        return self.newest

    @property
    def past(self) -> list[str]:
        """The last minute: for each second a text with a character for each place."""
        width = len(self._past[-1]) if self._past else 0
        return [row.ljust(width, "-")[:width] for row in self._past]

    def html(self) -> str:
        """Return the newest as a table, for where no kernel runs."""
        if "fleet" not in self.newest:  # it ended before its first snapshot
            return ""
        about, fleet = self.newest["about"], self.newest["fleet"]
        state = about["ended"] or about["state"]
        heading = f"{about['name']}: {state}, {about['up']} of {about['wanted']} workers"
        at = strftime("%Y-%m-%d %H:%M:%S", localtime(self.newest["at"]))
        named = self.newest | {"state": [fleet["states"][place] for place in self.newest["states"]]}
        rows = [["", *(head for head, _ in HEADS.values())]]
        for index, (host, label, *_) in enumerate(fleet["places"]):
            cells = [(named[name][index], unit) for name, (_, unit) in HEADS.items()]
            shown = (MISSING if value is None else f"{value}{unit}" for value, unit in cells)
            rows.append([f"{host}:{label}", *shown])
        lines = [text for _, text in self.newest["alarms"]]
        lines += [f"{run['preset']}: {run['state']} {run['text']}" for run in self.newest["runs"]]
        table = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
        )
        below = "<br>".join(map(escape, lines))
        return f"<b>{escape(heading)}</b> ({at})<table>{table}</table>{below}"


def _row(slot: Slot) -> tuple[int | None, ...]:
    """Return the whole numbers of a slot, in the order of `COLUMNS`; None for what is not read."""
    device, tasks = slot.device, None
    if slot.workers and (executing := slot.total("executing")) is not None:
        tasks = executing + (slot.total("ready") or 0)
    read = of_worker(slot.workers[0]) if device is None else of_device(device)
    values = (None,) * 4 if slot.dead else read[:4]
    return tuple(None if value is None else round(value) for value in (*values, tasks))


def _place(slot: Slot) -> list[Any]:
    """Return a slot's host, label, device and GiB of memory."""
    if slot.device is None:
        limit, name = slot.workers[0].memory_limit_bytes, "CPU worker"
    else:
        limit, name = slot.device.memory_total_bytes, slot.device.name
    return [slot.host.name, slot.label, name, limit and round(limit / GIB)]


def _run(run: RunStatus) -> dict[str, Any]:
    lines = (run.words if run.state.ended else run.stage).splitlines()
    return {
        "id": run.id,
        "preset": run.preset.rpartition("/")[2],
        "state": run.state.value,
        "done": run.done,
        "total": 0 if run.state.ended else run.total,
        "text": cut(lines[0], TEXT_CHARS) if lines else "",
    }


class FleetWidget(AnyWidget):  # type: ignore[misc]
    """The widget of one cluster, which it does not keep alive."""

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    about = traitlets.Dict().tag(sync=True)
    fleet = traitlets.Dict().tag(sync=True)
    past = traitlets.List().tag(sync=True)
    busy = traitlets.List().tag(sync=True)
    memory = traitlets.List().tag(sync=True)
    watts = traitlets.List().tag(sync=True)
    degrees = traitlets.List().tag(sync=True)
    tasks = traitlets.List().tag(sync=True)
    states = traitlets.List().tag(sync=True)
    alarms = traitlets.List().tag(sync=True)
    runs = traitlets.List().tag(sync=True)
    figures = traitlets.Dict().tag(sync=True)
    still = traitlets.Unicode().tag(sync=True)
    """The class of the HTML that it hides."""
    said = traitlets.Unicode().tag(sync=True)
    """What the head answered to the button that was pressed last."""
    at = traitlets.Int().tag(sync=True)
    """When the newest snapshot was taken, in seconds since the epoch."""

    def __init__(self, text: str, scale: Callable[[], Callable[[int], Any] | None]) -> None:
        """`text` stands for it where no page is; `scale` returns the method, or None."""
        super().__init__()
        self._text, self._scale = text, scale
        self._columns = FleetColumns()
        self._first = asyncio.Event()
        self._outputs: set[str] = set()
        """The ids of those that show it; that of the live one is the same with a dash."""
        self._ended_runs: frozenset[str] = frozenset()
        self.still = f"gputui-{uuid4().hex}"
        self._executes = True
        """Whether a cell is executed, during which the kernel hears nothing from the page."""
        self._heard_at = 0.0
        """When the page was last heard of, by the time of the snapshots."""
        self.on_msg(self._received)

    def show(self) -> None:
        """Show it in the cell that is executed."""
        events = get_ipython().events
        events.register("pre_execute", self._begin_cell)
        events.register("post_execute", self._end_cell)
        self._outputs.add(id := uuid4().hex)
        display(self._html(), raw=True, display_id=id)
        live, _ = self._repr_mimebundle_() or ({}, {})
        display(live | NOTHING, raw=True, display_id=f"{id}-")

    async def first(self) -> None:
        """Wait a moment for the first snapshot."""
        await within(FIRST_S, self._first.wait())

    async def follow(self, connection: HeadConnection) -> None:
        """Show what the head says, until it is gone or this is cancelled."""
        ended = "closed"
        try:
            async with connection:
                async for message in connection.messages():
                    if isinstance(message, SnapshotTaken):
                        self._look(message.snapshot)
            ended = connection.why_gone
        finally:
            self.about = self._columns.newest["about"] = self.about | {"ended": ended}
            self.settle()

    def settle(self) -> None:
        """Leave what it shows in the notebook, and be live no more."""
        self._refresh()
        for id in self._outputs:
            update_display(NOTHING, raw=True, display_id=f"{id}-")

    def _refresh(self) -> None:
        """Bring the HTML up to date, which a notebook is saved with."""
        for id in self._outputs:
            update_display(self._html(), raw=True, display_id=id)

    def _html(self) -> dict[str, str]:
        """Return the output of a cell without a kernel."""
        html = self._columns.html() or escape(self._text)
        style = f"<style>{NO_MODEL.format(f'.{self.still}')}</style>"
        return {
            "text/plain": self._text,
            "text/html": f'{style}<div class="{self.still}">{html}</div>',
        }

    def _look(self, snapshot: Snapshot) -> None:
        """Take in a snapshot; send what is new in it, unless nobody looks."""
        shown = self._columns.look(snapshot)
        self._first.set()
        if self._executes or not self._heard_at:
            self._heard_at = snapshot.taken_at
        if snapshot.taken_at - self._heard_at <= UNHEARD_S:
            with self.hold_sync():
                for name, value in shown.items():
                    setattr(self, name, value)
        ended = frozenset(run.id for run in snapshot.runs if run.state.ended)
        if ended != self._ended_runs:
            self._ended_runs = ended
            self._refresh()

    def _begin_cell(self) -> None:
        self._executes = True

    def _end_cell(self) -> None:
        self._executes = False

    def _received(self, _widget: object, content: Any, _buffers: object) -> None:
        """Handle what the page says: that it is looked at, or that a button was pressed."""
        self._heard_at = self._columns.newest.get("at", 0.0)
        if content.get("past"):
            self.past = self._columns.past
        if "scale" in content and (scale := self._scale()) is not None:
            self.said = ""
            try:
                answer = scale(content["scale"])
            except GputuiError as error:
                answer = str(error)
            if isinstance(answer, str):  # an asynchronous cluster answers later
                self.said = answer
