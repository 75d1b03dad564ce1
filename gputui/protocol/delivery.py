"""How a message waits while its channel's other end reads slowly: each class of message says it.

A message class without a `delivery` of its own is state.
"""

from enum import Enum, auto
from typing import Protocol, Self, runtime_checkable


class Delivery(Enum):
    """What may happen to a message that waits."""

    STATE = auto()
    """Never left out. A peer that lets too many of them wait is hung up on."""
    LATEST = auto()
    """Takes the place of one of its class that waits, or of its class and `delivery_key`."""
    FLOOD = auto()
    """Past a bound the oldest are left out, and counted in the next of the same key."""


@runtime_checkable
class Flood(Protocol):
    """A message that may be left out; the count of what was goes on."""

    @property
    def delivery_key(self) -> str:
        """What the count is kept by."""

    def left_out(self) -> Self:
        """Return this message without its content, which is counted."""

    def after(self, left_out: Self) -> Self:
        """Return this message with the count of one that was left out before it."""


def delivery_of(message: object) -> Delivery:
    """Return how a message waits."""
    delivery: Delivery = getattr(message, "delivery", Delivery.STATE)
    return delivery
