"""Values → short texts for a terminal. Pure; a reading that is missing is `–`, never 0.

`safe` comes before anything that a host, a person or a program wrote is shown: control characters
and direction marks becomes a visible character.
"""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from gputui.model.plain_text import MISSING as MISSING
from gputui.model.plain_text import UNITS, span
from gputui.model.plain_text import many as many
from gputui.model.plain_text import safe as safe
from gputui.model.plain_text import size as size

EIGHTHS = " ▁▂▃▄▅▆▇█"
HEATS = 8
"""Steps of a heat map's ramp."""
NO_DOTS = chr(0x2800)
_LEFT_DOTS = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT_DOTS = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
DOTS = [[chr(0x2800 + left + right) for right in _RIGHT_DOTS] for left in _LEFT_DOTS]
"""Cells of braille by the dots in their left and right column, from below."""
DOT_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a cell of braille: by column, from above."""


def memory(used_bytes: float | None, total_bytes: float | None) -> str:
    """Return used and total, in one unit unless one is hardly anything of the other.

    >>> memory(61 * 2**30, 140 * 2**30), memory(2**29, 140 * 2**30), memory(None, 2**34)
    ('61.0/140G', '512M/140G', '–/16.0G')
    >>> memory(40 * 2**30, 1120 * 2**30)
    '40G/1.1T'
    """
    if total_bytes is None:
        return size(used_bytes)
    power = max(0, (int(total_bytes).bit_length() - 1) // 10)
    unit = 1024**power
    total = total_bytes / unit
    shown = f"{total:.0f}" if total >= 99.95 else f"{total:.1f}"
    if used_bytes is not None and 0 < used_bytes < max(total_bytes / 40, unit / 20):
        return f"{size(used_bytes)}/{shown}{UNITS[power]}"
    used = MISSING if used_bytes is None else f"{used_bytes / unit:.1f}"
    return f"{used}/{shown}{UNITS[power]}"


def number(value: float | None, digits: int = 0) -> str:
    """Return a number, rounded.

    >>> number(None), number(87.4), number(0.25, 1)
    ('–', '87', '0.2')
    """
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """Return a share of a hundred, which may be more: of a worker's CPU.

    >>> percent(None), percent(249.7)
    ('–', '250%')
    """
    return number(value) if value is None else f"{number(value)}%"


def count(value: float | None) -> str:
    """Return a count in at most five characters.

    >>> count(None), count(7), count(12345), count(2500000)
    ('–', '7', '12.3k', '2.5M')
    """
    if value is None:
        return MISSING
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.0f}"


HOSTS_NAMED = 12
WORKERS_NAMED = 2
"""So few workers bear their own names; more are counted by host."""


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


def lasted(began_at: float, held_at: float, now: float) -> str:
    """Return for how long something has lasted, or how long ago it ended.

    >>> lasted(10.0, 25.0, 25.0), lasted(10.0, 22.0, 25.0)
    ('for 15s', 'until 3s ago')
    """
    return f"until {age(now - held_at)} ago" if now > held_at else f"for {age(now - began_at)}"


def age(seconds: float | None) -> str:
    """Return a span of time in its largest unit.

    >>> age(None), age(61)
    ('–', '1m')
    """
    return MISSING if seconds is None else span(seconds)


def moment(at: float, now: float) -> str:
    """Return when something was: the time, and the day where that is not the day of `now`."""
    then = datetime.fromtimestamp(at)
    today = then.date() == datetime.fromtimestamp(now).date()
    return f"{then:%H:%M:%S}" if today else f"{then:%d %b %H:%M}"


def elapsed(seconds: float | None) -> str:
    """Return a span of time as a clock.

    >>> elapsed(None), elapsed(75), elapsed(3671), elapsed(90000)
    ('–', '1:15', '1:01:11', '1d 1:00')
    """
    if seconds is None:
        return MISSING
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d {hours % 24}:{minute:02d}"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def took(seconds: float | None) -> str:
    """Return how long something took: a short time in tenths of a second.

    >>> took(0.94), took(12.0)
    ('0.9 s', '0:12')
    """
    return f"{seconds:.1f} s" if seconds is not None and seconds < 9.95 else elapsed(seconds)


def to_ascii(text: str) -> str:
    """Return a text in ASCII, cell for cell where it is made of the screen's own characters.

    >>> to_ascii("██▌ – ● ⣿⡀ ✓✗ 名")
    '##= - * #. vx ?'
    """
    return text if text.isascii() else text.translate(_ASCII).encode("ascii", "replace").decode()


_OWN = "≈╌–—…·•●○◐◔◌◆◇✖✓✗■□▲▼▾▸▴→←↑↓‖│─┌┐└┘├┤×°µ█▇▆▅▄▃▂▁▉▊▋▌▍▎▏▕▓▒░▚▞▤▥"
_PLAIN = "~---..**o%%.@+Xvx#=^vv>^><^v\"|-++++++x'u#####==_###==-  #+.%%=="
_ASCII = {
    **dict(zip(map(ord, _OWN), _PLAIN, strict=True)),
    **{0x2800 + dots: " .:+#####"[dots.bit_count()] for dots in range(256)},
}
