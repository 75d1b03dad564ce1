"""One GPU in full, below the fleet's rows or in a rail next to them."""

from collections.abc import Sequence

from gputui.slots import Slot
from gputui.tui.history import Span
from gputui.tui.rendering.detail import Detail, detail_lines
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Pane

LOG_LINES = 40


class DetailPane(Pane):
    """The GPU under the cursor."""

    can_focus = False

    def show(self, watched: Watched, slot: Slot, span: Span) -> None:
        """Show a slot as it is in the newest snapshot."""
        width, height = self.size
        self.put(detail_lines(detail_of(watched, slot, span), width, height))


def detail_of(watched: Watched, slot: Slot, span: Span) -> Detail:
    """Return what is known of a slot."""
    assert watched.snapshot is not None
    now = watched.snapshot.taken_at
    kinds: Sequence[str] = watched.alarms.by_subject().get(slot.key, ())
    worker = slot.workers[0].name if slot.workers else ""
    since = watched.task_since.get(worker)
    log = [(line.at, line.text) for line in watched.logs.last(worker, LOG_LINES)] if worker else []
    since_s = None if since is None else now - since[1]
    return Detail(slot, watched.history, span, now, kinds, since_s, log)
