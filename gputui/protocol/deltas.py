"""Send repeated messages as deltas: most of a snapshot is as it was a second ago.

The first message of a class on a channel goes whole, as `codec` writes it. The next ones are one
line each, `["Changes", "Telemetry", [column, values], [column, rows, values], …]`, against the one
that was *sent* last, so that nothing is lost where a message takes the place of one that waits.

A message is taken apart into tables (`gputui.protocol.tables`). A column goes whole, or only those
of its rows that changed.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, compress, islice, repeat
from operator import is_, ne
from typing import Any

from gputui.errors import ProtocolError
from gputui.protocol.codec import WrongTypeError, decode, parse, shown, to_line
from gputui.protocol.shared import Delivery, delivery_of
from gputui.protocol.tables import COUNTS, Nested, layout, places

NAME = "Changes"
PREFIX = f'["{NAME}"'.encode()
FEW = 4
"""A column goes as those rows that changed where that is at most one in so many."""


class Columns:
    """A message taken apart: for each table its rows, and the columns that are sent of them."""

    __slots__ = ("columns", "kind", "rows")

    def __init__(self, message: Any, before: "Columns | None" = None) -> None:
        """Take a message apart; what holds the same values as `before` need not be."""
        self.kind = message.__class__
        tables = layout(self.kind)
        self.rows: list[Sequence[Any]] = [(message,)] * len(tables)
        self.columns: list[list[Sequence[Any]]] = [[]] * len(tables)
        for index, table in enumerate(tables):
            rows = self.rows[index]
            if before is not None and _same(rows, before.rows[index]):
                self.columns[index] = before.columns[index]
                for each in table.nested:
                    self.rows[each.table] = before.rows[each.table]
                continue
            columns = self.columns[index] = table.columns(rows)
            for each in table.nested:
                values = columns[each.place]
                columns[each.place], self.rows[each.table] = _apart(each, values)

    def line_after(self, before: "Columns") -> bytes:
        """Return the line that makes this message of the one before."""
        changes: list[Any] = [NAME, self.kind.__name__]
        for index, table in enumerate(layout(self.kind)):
            new, old = self.columns[index], before.columns[index]
            if new is old:
                continue
            resized = len(self.rows[index]) != len(before.rows[index])
            for place in table.sent:
                if resized or new[place] != old[place]:
                    number = table.first + place
                    changes.append(_change(number, new[place], old[place], whole=resized))
        return to_line(changes)


def _same(rows: Sequence[Any], others: Sequence[Any]) -> bool:
    return rows is others or (len(rows) == len(others) and all(map(is_, rows, others)))


def _apart(each: Nested, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return (how many values each row has, all values) of a nested field."""
    if each.many:
        return tuple(map(len, values)), tuple(chain.from_iterable(values))
    if each.optional:
        counts = tuple([0 if value is None else 1 for value in values])
        return counts, tuple([value for value in values if value is not None])
    return (), values


def _change(number: int, column: Sequence[Any], old: Sequence[Any], *, whole: bool) -> list[Any]:
    if not whole and len(column) > FEW:
        few = len(column) // FEW
        changed = list(islice(compress(range(len(column)), map(ne, column, old)), few + 1))
        if len(changed) <= few:
            return [number, changed, [column[row] for row in changed]]
    return [number, column]


class Received:
    """The last message of a class that came, as tables that changes are made to."""

    def __init__(self, message: Any) -> None:
        self._kind = message.__class__
        self._layout = layout(self._kind)
        apart = Columns(message)
        self._rows = apart.rows
        self._counts: list[dict[int, Sequence[int]]] = []
        """For each table, place of a nested field → how many values each row has."""
        self._columns: list[list[Sequence[Any]]] = []
        """For each table, the values of each field, nested ones as they are."""
        self._texts: dict[int, int] = {}
        """Number of a column that is not of numbers → how much text is in it."""
        self._values = 0
        """How many values there are in all columns."""
        for index, table in enumerate(self._layout):
            self._columns.append(columns := table.columns(apart.rows[index]))
            self._values += len(columns) * len(apart.rows[index])
            sent = apart.columns[index]
            self._counts.append({e.place: sent[e.place] for e in table.nested if e.counted})
            for place, column in table.plain.items():
                if column.text:
                    self._texts[table.first + place] = len(str(sent[place]))

    @property
    def size(self) -> int:
        """Its size: about as many bytes as its line would have, had it gone whole.

        What holds or handles it is spent on all of it, however little of it came.
        """
        return self._values + sum(self._texts.values())

    def change(self, changes: Iterable[list[Any]]) -> Any:
        """Make changes, and return the message; after an error it is of no use any more."""
        touched: set[int] = set()
        recounted: set[int] = set()
        """Tables with another number of rows, perhaps, or of values in a nested field."""
        by_number = places(self._kind)
        for change in changes:
            number, values = change[0], change[-1]
            index, place, column = by_number[number]
            columns = self._columns[index] if column is not COUNTS else self._counts[index]
            before, now = columns[place], column.check(values)
            if len(change) != 2:
                _, chosen, _ = change
                now = _merged(before, chosen, now)
            columns[place] = now
            touched.add(index)
            if column is COUNTS or len(now) != len(before):
                recounted.add(index)
            if column.text:
                self._texts[number] = len(str(now))
        if recounted:
            self._recount(touched, recounted)
        for index in range(len(self._layout) - 1, -1, -1):
            if index in touched:
                self._rows[index] = self._remade(index, touched, recounted)
                touched.add(self._layout[index].parent)
        return self._rows[0][0]

    def _recount(self, touched: set[int], recounted: set[int]) -> None:
        """Check that all columns of a table are of one length; add tables with another length."""
        lengths = [1] * len(self._layout)
        self._values = 0
        for index, table in enumerate(self._layout):
            length, counts, columns = lengths[index], self._counts[index], self._columns[index]
            self._values += length * len(columns)
            if index in recounted or length != len(self._rows[index]):
                touched.add(index)
                recounted.add(index)
                found = {len(columns[place]) for place in table.plain}
                if not found.union(map(len, counts.values())) <= {length}:
                    raise ValueError(f"not {length} of each")
            for each in table.nested:
                lengths[each.table] = sum(counts[each.place]) if each.counted else length

    def _remade(self, index: int, touched: set[int], recounted: set[int]) -> Sequence[Any]:
        """Return the rows of a table that was touched, or that holds one that was."""
        table, columns, counts = self._layout[index], self._columns[index], self._counts[index]
        for each in table.nested:
            if each.table in touched or index in recounted:
                rows = self._rows[each.table]
                columns[each.place] = _together(each, counts.get(each.place), rows)
        return table.rows_of(columns)


def _merged(before: Sequence[Any], rows: list[int], values: Sequence[Any]) -> Sequence[Any]:
    """Return a column with other values in some of its rows."""
    if rows and min(rows) < 0:
        raise ValueError("a row before the first")
    merged = list(before)
    for row, value in zip(rows, values, strict=True):
        merged[row] = value
    return tuple(merged)


def _together(each: Nested, counts: Sequence[int] | None, values: Sequence[Any]) -> Sequence[Any]:
    """Return the column of a nested field, of all its values in their order."""
    if counts is None:
        return values
    left = iter(values)
    if each.many:
        return tuple(map(tuple, map(islice, repeat(left), counts)))
    if any(count > 1 for count in counts):
        raise ValueError("two values in place of one")
    return tuple([next(left) if count else None for count in counts])


class Incoming:
    """The messages that arrive on one channel, made whole again."""

    def __init__(self, messages: Any, max_bytes: int) -> None:
        """Take messages of this union; none may be larger, however little of it is sent."""
        self._messages = messages
        self._max_bytes = max_bytes
        self._last: dict[str, object | Received] = {}
        self.size = 0
        """Of the last message: what it would have taken whole."""

    def decode(self, line: bytes) -> Any:
        """Return the message that a line holds; raises ProtocolError.

        After that nothing is known to change: what the line held may be missing from it.
        """
        try:
            return self._changed(line) if line.startswith(PREFIX) else self._whole(line)
        except ProtocolError:
            self._last.clear()
            raise

    def _whole(self, line: bytes) -> Any:
        message = decode(line, self._messages)
        self.size = len(line)
        if delivery_of(message) is Delivery.LATEST:
            self._last[type(message).__name__] = message
        return message

    def _changed(self, line: bytes) -> Any:
        try:
            _, name, *changes = parse(line)
            received = self._last[name]
            if not isinstance(received, Received):
                received = self._last[name] = Received(received)
            message = received.change(changes)
        except WrongTypeError as error:
            raise ProtocolError(f"{error}: {shown(line)}") from error
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ProtocolError(f"no changes of a message: {shown(line)}") from error
        self.size = received.size
        if self.size > self._max_bytes:
            raise ProtocolError(f"a {name} of more than {self._max_bytes} bytes")
        return message
